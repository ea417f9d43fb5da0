//! Releases of kernels, and modules that fit them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// The signature of a kernel image, and its place.
const SIGNATURE: (usize, &[u8]) = (0x202, b"HdrS");
/// The place of the pointer to the release, which counts from [`BASE`].
const POINTER: usize = 0x20e;
const BASE: usize = 0x200;
/// Maximum length of a release.
const RELEASE_MAX: usize = 128;

/// What a module says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// The release of its kernel.
    pub release: String,
    /// The names of the modules that it needs.
    pub needs: Vec<String>,
}

impl Module {
    /// Reads a file.
    ///
    /// # Errors
    /// If that is no module, or a compressed one.
    pub fn read(file: &Path) -> Result<Self> {
        let data = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        Self::parse(&data)
            .with_context(|| format!("{} is no kernel module, or a compressed one", file.display()))
    }

    fn parse(data: &[u8]) -> Option<Self> {
        if !data.starts_with(b"\x7fELF") {
            return None;
        }
        let magic = field(data, "vermagic=")?;
        let release = magic.split(' ').next().unwrap_or_default().to_owned();
        let needs = field(data, "depends=").unwrap_or_default();
        let needs = needs.split(',').filter(|it| !it.is_empty()).map(str::to_owned).collect();
        Some(Self { name: field(data, "name=")?, release, needs })
    }

    /// Checks that it fits the kernel with this release.
    ///
    /// # Errors
    /// If it does not.
    pub fn fits(&self, release: &str) -> Result<()> {
        let Self { name, release: own, .. } = self;
        ensure!(
            own == release,
            "the module {name} is built for kernel {own}, and the guests' kernel is {release}"
        );
        Ok(())
    }
}

/// Returns a field of a module. The fields are texts that end with a zero byte, one after another.
fn field(data: &[u8], key: &str) -> Option<String> {
    let before = |at: usize| at == 0 || data.get(at - 1) == Some(&0);
    let at = data
        .windows(key.len())
        .enumerate()
        .find(|(at, window)| *window == key.as_bytes() && before(*at))?
        .0;
    let value = data.get(at + key.len()..)?;
    let len = value.iter().position(|byte| *byte == 0)?;
    value.get(..len).map(|value| String::from_utf8_lossy(value).into_owned())
}

/// Returns the release of a kernel image (bzImage), such as `7.3.4+deb13-amd64`.
///
/// # Errors
/// If the file is no such image.
pub fn release(image: &Path) -> Result<String> {
    let data = fs::read(image).with_context(|| format!("cannot read {}", image.display()))?;
    release_in(&data)
        .with_context(|| format!("{} is no image of a kernel for x86 (bzImage)", image.display()))
}

fn release_in(data: &[u8]) -> Option<String> {
    let (at, signature) = SIGNATURE;
    if data.get(at..at + signature.len())? != signature {
        return None;
    }
    let pointer = data.get(POINTER..POINTER + 2)?;
    let at = usize::from(u16::from_le_bytes([pointer[0], pointer[1]])) + BASE;
    let text = data.get(at..data.len().min(at + RELEASE_MAX))?;
    let len = text.iter().position(|byte| *byte == b' ' || *byte == 0)?;
    String::from_utf8(text.get(..len)?.to_vec()).ok().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_says_what_it_needs() {
        let data = b"\x7fELF...\0alias=name=x\0depends=ib_core,tls\0name=mine\0vermagic=7.3.4 SMP mod_unload \0";
        let module = Module::parse(data).expect("a module");
        assert_eq!((module.name.as_str(), module.release.as_str()), ("mine", "7.3.4"));
        assert_eq!(module.needs, ["ib_core", "tls"]);
        assert!(module.fits("7.3.4").is_ok());
        let error = module.fits("6.1.0").map_err(|error| error.to_string());
        assert!(error.is_err_and(|it| it.contains("built for kernel 7.3.4, and")));
        assert_eq!(Module::parse(b"\xfd7zXZ\0"), None);
        assert_eq!(Module::parse(b"\x7fELF"), None);
    }

    #[test]
    fn the_release_of_an_image_is_read() {
        let mut image = vec![0; 0x400];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        image[0x300..0x314].copy_from_slice(b"7.3.4-own (user@host");
        assert_eq!(release_in(&image).as_deref(), Some("7.3.4-own"));
        image[0x20e..0x210].copy_from_slice(&u16::MAX.to_le_bytes());
        assert_eq!(release_in(&image), None);
        assert_eq!(release_in(b"\x7fELF"), None);
    }
}
