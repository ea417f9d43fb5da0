//! Numbers of users and groups, from the files of a root.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::container::inside::inside;

/// A user of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The number of the user.
    pub uid: u32,
    /// The number of the group.
    pub gid: u32,
    /// The home folder.
    pub home: String,
}

/// Finds a user, who is written as in Dockerfiles: a name or number, and a group after a colon.
/// Without a name it is root.
///
/// # Errors
/// If the root has no such user or group.
pub fn find(root: &Path, text: &str) -> Result<User> {
    let (name, group) = text.split_once(':').unwrap_or((text, ""));
    let name = if name.is_empty() { "root" } else { name };
    let number = name.parse::<u32>().ok();
    let users = lines(root, "/etc/passwd");
    let known = users.iter().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| {
        let uid = fields.get(2).and_then(|uid| uid.parse::<u32>().ok());
        fields.first() == Some(&name) || (number.is_some() && uid == number)
    });
    let field = |at: usize| known.as_ref().and_then(|fields| fields.get(at)).copied();
    let given = |at: usize| field(at).and_then(|text| text.parse::<u32>().ok());
    let uid = number.or_else(|| given(2)).or((name == "root").then_some(0));
    let uid = uid.with_context(|| format!("the root has no user '{name}'"))?;
    let gid = match group {
        "" => given(3).unwrap_or(0),
        group => group_number(root, group)?,
    };
    let home = field(5).filter(|home| !home.is_empty());
    let home = home.unwrap_or(if uid == 0 { "/root" } else { "/" }).to_owned();
    Ok(User { uid, gid, home })
}

fn group_number(root: &Path, group: &str) -> Result<u32> {
    let listed = || {
        let groups = lines(root, "/etc/group");
        let line = groups.iter().find(|line| line.split(':').next() == Some(group))?;
        line.split(':').nth(2)?.parse().ok()
    };
    group.parse().ok().or_else(listed).with_context(|| format!("the root has no group '{group}'"))
}

fn lines(root: &Path, file: &str) -> Vec<String> {
    let bytes = inside(root, Path::new(file)).and_then(|path| fs::read(path).ok());
    String::from_utf8_lossy(&bytes.unwrap_or_default()).lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() -> Result<()> {
        let root = tempfile::tempdir()?;
        let root = root.path();
        let user = |uid, gid, home: &str| User { uid, gid, home: home.into() };
        assert_eq!(find(root, "")?, user(0, 0, "/root"));
        assert_eq!(find(root, "7:8")?, user(7, 8, "/"));
        assert!(find(root, "app").is_err());
        fs::create_dir(root.join("etc"))?;
        fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\napp:x:7:9::/srv/app:\n")?;
        fs::write(root.join("etc/group"), "wheel:x:10:\n")?;
        assert_eq!(find(root, "app")?, user(7, 9, "/srv/app"));
        assert_eq!(find(root, "7")?, user(7, 9, "/srv/app"));
        assert_eq!(find(root, "app:wheel")?, user(7, 10, "/srv/app"));
        assert!(find(root, "app:others").is_err());
        Ok(())
    }
}
