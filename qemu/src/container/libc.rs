//! The C library of a root, which the plugin needs, too.

use std::path::Path;

use crate::container::inside::inside;
use crate::container::verbs::FOLDERS;

/// The dynamic linkers of musl and of glibc.
const MUSL: &str = "/lib/ld-musl-x86_64.so.1";
const GLIBC: &str = "/lib64/ld-linux-x86-64.so.2";
const LIBRARY: &str = "libc.so.6";
/// How the name of glibc's file begins before release 2.34, such as `libc-2.31.so`.
const OLD: &str = "libc-2.";

/// Returns why programs of a root cannot load the plugin, if that is known.
#[must_use]
pub fn unfit(root: &Path) -> Option<String> {
    let has = |path: &str| inside(root, Path::new(path)).is_some();
    if has(MUSL) && !has(GLIBC) {
        return Some("the root's C library is musl, and the plugin needs glibc".to_owned());
    }
    let file = |folder: &&str| inside(root, &Path::new(folder).join(LIBRARY));
    let file = FOLDERS.iter().find_map(file)?;
    let name = file.file_name()?.to_string_lossy().into_owned();
    let release = name.strip_prefix(OLD)?.trim_end_matches(".so");
    Some(format!("the root has glibc 2.{release}, and the plugin needs 2.34 or later"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn musl_and_an_old_glibc_are_known() -> std::io::Result<()> {
        let root = tempfile::tempdir()?;
        let root = root.path();
        assert_eq!(unfit(root), None, "no C library at all");
        for folder in ["lib", "lib64", "usr/lib64"] {
            fs::create_dir_all(root.join(folder))?;
        }
        fs::write(root.join(&MUSL[1..]), "")?;
        assert!(unfit(root).is_some_and(|why| why.contains("is musl")));
        fs::write(root.join(&GLIBC[1..]), "")?;
        assert_eq!(unfit(root), None, "both");
        fs::write(root.join("usr/lib64/libc-2.28.so"), "")?;
        symlink("libc-2.28.so", root.join("usr/lib64/libc.so.6"))?;
        assert!(unfit(root).is_some_and(|why| why.contains("glibc 2.28, and")));
        fs::remove_file(root.join("usr/lib64/libc.so.6"))?;
        fs::write(root.join("usr/lib64/libc.so.6"), "")?;
        assert_eq!(unfit(root), None, "a later glibc");
        Ok(())
    }
}
