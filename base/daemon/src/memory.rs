//! The limit of this process's memory.

use std::fs;
use std::path::Path;

/// The bytes that the process's cgroup, and those above it, allow; `None`: no limit.
#[must_use]
pub fn limit() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    limit_below(Path::new("/sys/fs/cgroup"), &own)
}

/// [`limit`] by a hierarchy that is mounted at `root` and the lines of /proc/self/cgroup:
/// that of version 2 (`0::/path`), or of version 1's controller `memory`. In a container
/// the path may not exist below `root`, which is then the container's own.
fn limit_below(root: &Path, own: &str) -> Option<u64> {
    let of_line = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            list if list.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let start = root.join(path.trim_start_matches('/'));
        let groups = start.ancestors();
        let groups = groups.take_while(|group| group.starts_with(&root));
        groups
            .filter_map(|group| fs::read_to_string(group.join(file)).ok())
            .filter_map(|text| text.trim().parse().ok())
            // Version 1 has a number for no limit.
            .filter(|bytes| *bytes < 1 << 60)
            .min()
    };
    own.lines().filter_map(of_line).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_of_the_groups_above_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/b/memory.max", "max\n");
        write("a/memory.max", "67108864\n");
        write("memory.max", "1000000000\n");
        write("memory/c/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/d/memory.limit_in_bytes", "5000\n");
        for (own, expected) in [
            ("0::/a/b\n", Some(67_108_864)),
            ("0::/not/there\n", Some(1_000_000_000)),
            ("3:cpu:/c\n5:hugetlb,memory:/c\n", None),
            ("3:cpu:/c\n5:memory:/d\n", Some(5000)),
            ("nonsense\n", None),
        ] {
            assert_eq!(limit_below(root.path(), own), expected, "{own}");
        }
    }
}
