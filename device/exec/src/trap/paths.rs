//! The paths that belong to the adapters.

/// The folders that the supervisor shows instead of the kernel's.
const FOLDERS: [&str; 4] = [
    "/sys/class/infiniband",
    "/sys/class/infiniband_verbs",
    "/sys/class/misc/rdma_cm",
    "/dev/infiniband",
];
/// The path of the connection manager.
pub const RDMA_CM: &str = "/dev/infiniband/rdma_cm";

/// Returns the path of a file of the adapters, without superfluous parts. `None` for all other
/// files. A path that is relative to a folder of the adapters needs no help, because that folder
/// is a real one. Symbolic links that lead there from elsewhere are not followed.
#[must_use]
pub fn own(path: &[u8]) -> Option<String> {
    // Nearly all paths end here.
    if !path.starts_with(b"/sys/") && !path.starts_with(b"/dev/") && !path.starts_with(b"//") {
        return None;
    }
    let text = std::str::from_utf8(path).ok()?;
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                let _root = parts.pop();
            }
            name => parts.push(name),
        }
    }
    let plain = format!("/{}", parts.join("/"));
    let is_inside = |folder: &&str| {
        plain.strip_prefix(*folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    FOLDERS.iter().any(is_inside).then_some(plain)
}

/// An open file of a process, as its link below `/proc` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The number of the process. Without one, it is the process that uses the path.
    pub process: Option<i32>,
    /// The descriptor.
    pub descriptor: i32,
}

/// Returns the open file to which a path leads. `None` for all paths that are no such link in its
/// usual form.
#[must_use]
pub fn link(path: &[u8]) -> Option<Link> {
    // Nearly all paths end here.
    if !path.starts_with(b"/proc/") && !path.starts_with(b"/dev/fd/") {
        return None;
    }
    let text = std::str::from_utf8(path).ok()?;
    if let Some(number) = text.strip_prefix("/dev/fd/") {
        return Some(Link { process: None, descriptor: number.parse().ok()? });
    }
    let (process, number) = text.strip_prefix("/proc/")?.split_once("/fd/")?;
    let process = match process {
        "self" | "thread-self" => None,
        number => Some(number.parse().ok()?),
    };
    Some(Link { process, descriptor: number.parse().ok()? })
}

/// Returns the number of the adapter whose device file has this path.
#[must_use]
pub fn device(path: &str) -> Option<usize> {
    path.strip_prefix("/dev/infiniband/uverbs")?.parse().ok()
}

/// Returns the name of the adapter and the name of the counter whose file has this path.
#[must_use]
pub fn counter(path: &str) -> Option<(&str, &str)> {
    let (adapter, rest) = path.strip_prefix("/sys/class/infiniband/")?.split_once('/')?;
    Some((adapter, rest.strip_prefix("ports/1/hw_counters/")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_adapters_are_found() {
        for (path, plain) in [
            ("/sys/class/infiniband", "/sys/class/infiniband"),
            ("//sys/class//infiniband/./vrnic0/", "/sys/class/infiniband/vrnic0"),
            ("/dev/x/../infiniband/uverbs0", "/dev/infiniband/uverbs0"),
            ("/sys/class/infiniband_verbs/abi_version", "/sys/class/infiniband_verbs/abi_version"),
        ] {
            assert_eq!(own(path.as_bytes()).as_deref(), Some(plain));
        }
    }

    #[test]
    fn other_files_are_not() {
        let paths: [&[u8]; 6] = [
            b"/sys/class/infiniband_mad/umad0",
            b"/sys/class/net/lo",
            b"/dev/null",
            b"/etc/passwd",
            b"sys/class/infiniband",
            b"/dev/infiniband/../\xff",
        ];
        for path in paths {
            assert_eq!(own(path), None, "{}", path.escape_ascii());
        }
    }

    #[test]
    fn links_to_open_files_are_found() {
        let own = |descriptor| Some(Link { process: None, descriptor });
        for path in ["/proc/self/fd/12", "/proc/thread-self/fd/12", "/dev/fd/12"] {
            assert_eq!(link(path.as_bytes()), own(12), "{path}");
        }
        let other = Some(Link { process: Some(7), descriptor: 3 });
        assert_eq!(link(b"/proc/7/fd/3"), other);
        for path in ["/proc/self/fdinfo/12", "/proc/x/fd/1", "/proc/self/fd/x", "/dev/fd", "/"] {
            assert_eq!(link(path.as_bytes()), None, "{path}");
        }
    }

    #[test]
    fn device_files_have_numbers() {
        assert_eq!(device("/dev/infiniband/uverbs12"), Some(12));
        assert_eq!(device(RDMA_CM), None);
        assert_eq!(own(RDMA_CM.as_bytes()).as_deref(), Some(RDMA_CM));
    }
}
