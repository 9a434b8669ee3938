//! A small file system that can be filled up.
//!
//! Promise: it is there until it is dropped, and nothing else is on it. Mounting needs root: without it the error says
//! so, and nothing is skipped. When the test process is killed the mount stays behind, empty after the next restart.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

const LARGE: usize = 1024 * 1024;
const SMALL: usize = 4 * 1024;

/// A mounted file system in memory.
pub struct Disk {
    directory: TempDir,
}

impl Disk {
    /// Enough to see whether one can be mounted.
    pub const SMALLEST: u64 = 1 << 20;

    /// Mounts one of so many bytes.
    pub fn mount(bytes: u64) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("postrider-disk-").tempdir()?;
        let options = format!("size={bytes},mode=0755");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "postrider-chaos"]).arg(directory.path());
        let ended = mount.output().context("cannot run mount")?;
        ensure!(
            ended.status.success(),
            "the fault `disk` needs a small file system, and it cannot be mounted (only root may): {}",
            String::from_utf8_lossy(&ended.stderr).lines().next().unwrap_or_default()
        );
        Ok(Self { directory })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Writes until there is no room for another page; says how many bytes that took. What others have removed since is filled again.
    pub fn fill(&self) -> Result<u64> {
        let mut file =
            OpenOptions::new().create(true).append(true).open(self.filler()).context("cannot fill the disk")?;
        let mut written = 0;
        for size in [LARGE, SMALL] {
            let piece = vec![0; size];
            loop {
                match file.write(&piece) {
                    Ok(0) => break,
                    Ok(count) => written += count as u64,
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => return Err(error).context("cannot fill the disk"),
                }
            }
        }
        Ok(written)
    }

    /// Makes room again.
    pub fn free(&self) -> Result<()> {
        match std::fs::remove_file(self.filler()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error).context("cannot make room on the disk"),
            _ => Ok(()),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // lazily, because a server that was just killed may still be there for a moment
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r37_a_full_disk_takes_nothing_until_there_is_room_again() -> Result<()> {
        if !nix::unistd::Uid::effective().is_root() {
            assert!(Disk::mount(1 << 20).err().is_some_and(|error| error.to_string().contains("only root may")));
            return Ok(());
        }
        let disk = Disk::mount(2 << 20)?;
        let path = disk.path().to_path_buf();
        assert!(disk.fill()? > 1 << 20);
        let error = std::fs::write(path.join("more"), [0; 4096]).expect_err("it is full");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(disk.fill()? < SMALL as u64, "there is no room left to fill");
        disk.free()?;
        std::fs::write(path.join("more"), [0; 4096])?;
        drop(disk);
        assert!(!path.exists(), "it is gone");
        Ok(())
    }
}
