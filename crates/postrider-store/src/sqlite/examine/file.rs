//! The file: where it lies, and how large its log is.

use std::path::{Path, PathBuf};

use postrider_core::operate::Finding;

use crate::examine::Thresholds;

/// File systems on which several machines can open a file, and locks and shared memory do not work as SQLite needs.
const FOREIGN: [&str; 12] =
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "afs", "beegfs", "gpfs"];

/// Linux lists what is mounted here.
const MOUNTS: &str = "/proc/self/mounts";

pub(super) fn look(path: &Path, thresholds: &Thresholds) -> Vec<Finding> {
    let mut findings = vec![log(path, thresholds)];
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    findings.extend(std::fs::read_to_string(MOUNTS).ok().map(|mounts| file_system(&mounts, &whole)));
    findings
}

fn log(path: &Path, thresholds: &Thresholds) -> Finding {
    const NAME: &str = "wal-size";
    let mut beside = path.as_os_str().to_owned();
    beside.push("-wal");
    let bytes = std::fs::metadata(PathBuf::from(beside)).map_or(0, |found| found.len());
    match i64::try_from(bytes).unwrap_or(i64::MAX) > thresholds.log_bytes {
        true => Finding::warning(
            NAME,
            format!(
                "the -wal file has {bytes} bytes: somebody reads without an end, so it cannot be written back to the database"
            ),
            "end long reads, then run: pragma wal_checkpoint(truncate)",
        ),
        false => Finding::fine(NAME, format!("the -wal file has {bytes} bytes")),
    }
}

fn file_system(mounts: &str, path: &Path) -> Finding {
    const NAME: &str = "file-system";
    let lines = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?.replace("\\040", " "), words.next()?))
    });
    let over = lines.filter(|(place, _)| path.starts_with(place)).max_by_key(|(place, _)| place.len());
    match over {
        Some((_, kind)) if FOREIGN.contains(&kind) || kind.starts_with("fuse.") => Finding::problem(
            NAME,
            format!("the file is on {kind}, where SQLite's locks and shared memory cannot be trusted"),
            "move the file to a local disk, and run all programs that use it on that machine",
        ),
        Some((_, kind)) => Finding::fine(NAME, format!("the file is on {kind}")),
        None => Finding::not_examined(NAME, "it cannot be told which file system the file is on"),
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::operate::Severity;

    use super::*;

    #[test]
    fn a_file_on_another_machine_is_told_from_a_local_one() {
        let mounts = "/dev/sda1 / ext4 rw 0 0\nserver:/x /srv nfs4 rw 0 0\ntmpfs /srv/local tmpfs rw 0 0\nh:/y /my\\040disk fuse.sshfs rw 0 0\n";
        for (path, severity) in [
            ("/var/lib/shop.db", Severity::Fine),
            ("/srv/shop.db", Severity::Problem),
            ("/srv/local/shop.db", Severity::Fine),
            ("/srvx/shop.db", Severity::Fine),
            ("/my disk/shop.db", Severity::Problem),
        ] {
            assert_eq!(file_system(mounts, Path::new(path)).severity, severity, "{path}");
        }
        assert_eq!(file_system("", Path::new("/x")).severity, Severity::Fine);
    }
}
