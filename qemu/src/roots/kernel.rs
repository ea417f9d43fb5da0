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
    /// The module's name.
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
        let data = section(data, b".modinfo")?;
        let magic = field(data, "vermagic=")?;
        let release = magic.split(' ').next().unwrap_or_default().to_owned();
        let needs = field(data, "depends=").unwrap_or_default();
        let needs = needs.split(',').filter(|it| !it.is_empty()).map(str::to_owned).collect();
        let name = field(data, "name=").filter(|name| plain(name))?;
        Some(Self { name, release, needs })
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

/// Returns whether this is the name of a module, which a shell takes as it is.
fn plain(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    !name.is_empty() && name.bytes().all(good)
}

/// Returns the contents of a section of an ELF file for x86-64.
fn section<'a>(data: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    if !data.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let table = number(data, 0x28, 8)?;
    let [size, count, names] = [0x3a, 0x3c, 0x3e].map(|at| number(data, at, 2));
    let (size, count) = (size?, count?);
    let header = |index: usize| data.get(table.checked_add(index.checked_mul(size)?)?..);
    let contents = |header: &[u8]| {
        let (at, len) = (number(header, 0x18, 8)?, number(header, 0x20, 8)?);
        data.get(at..at.checked_add(len)?)
    };
    let texts = contents(header(names?)?)?;
    let named = |header: &[u8]| {
        let text = number(header, 0, 4).and_then(|at| texts.get(at..)).unwrap_or_default();
        text.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0))
    };
    contents((0..count).filter_map(header).find(|header| named(header))?)
}

/// Returns a number of so many bytes.
fn number(data: &[u8], at: usize, len: usize) -> Option<usize> {
    let bytes = data.get(at..at.checked_add(len)?)?;
    let number = bytes.iter().rev().fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    usize::try_from(number).ok()
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
pub(crate) mod tests {
    use super::*;

    /// Returns an ELF file whose section .modinfo has this content. It is preceded by another
    /// section with a name.
    pub(crate) fn module(fields: &[u8]) -> Vec<u8> {
        const SECTIONS: [&str; 3] = [".strings", ".modinfo", ".shstrtab"];
        let mut names = SECTIONS.join("\0").into_bytes();
        names.push(0);
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(0x40, 0);
        let (mut headers, mut name) = (Vec::new(), 0_u32);
        for (text, content) in SECTIONS.iter().zip([b"\0name=wrong; x\0", fields, &names]) {
            let mut header = [0; 0x40];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[0x18..0x20].copy_from_slice(&(file.len() as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(content.len() as u64).to_le_bytes());
            headers.extend(header);
            file.extend(content);
            name += u32::try_from(text.len() + 1).expect("a short name");
        }
        let table = (file.len() as u64).to_le_bytes();
        file[0x28..0x30].copy_from_slice(&table);
        file[0x3a] = 0x40;
        file[0x3c] = 3;
        file[0x3e] = 2;
        file.extend(headers);
        file
    }

    #[test]
    fn a_module_says_what_it_needs() {
        let data = module(
            b"alias=name=x\0depends=ib_core,tls\0name=mine\0vermagic=7.3.4 SMP mod_unload \0",
        );
        for cut in 0..data.len() - 0x40 {
            assert_eq!(Module::parse(&data[..cut]), None, "{cut} bytes");
        }
        let module = Module::parse(&data).expect("a module");
        assert_eq!((module.name.as_str(), module.release.as_str()), ("mine", "7.3.4"));
        assert_eq!(module.needs, ["ib_core", "tls"]);
        assert!(module.fits("7.3.4").is_ok());
        let error = module.fits("6.1.0").map_err(|error| error.to_string());
        assert!(error.is_err_and(|it| it.contains("built for kernel 7.3.4, and")));
        assert_eq!(Module::parse(b"\xfd7zXZ\0"), None);
    }

    #[test]
    fn the_name_of_a_module_is_a_word() {
        let named = |name: &str| {
            let fields = format!("name={name}\0vermagic=7.3.4 SMP\0");
            Module::parse(&module(fields.as_bytes())).map(|module| module.name)
        };
        assert_eq!(named("my-module_2").as_deref(), Some("my-module_2"));
        for name in ["", "a b", "x;reboot", "../x", "$(x)"] {
            assert_eq!(named(name), None, "{name}");
        }
        // No section may lead out of the file.
        let mut data = module(b"name=x\0vermagic=7 \0");
        data[0x28..0x30].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(Module::parse(&data), None);
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
