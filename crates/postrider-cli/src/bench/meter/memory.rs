//! The most memory that this process had, by the kernel's own mark (`VmHWM`).

use std::fs;

/// Sets the mark to what is used now (`clear_refs`, see proc(5)); false where that is not allowed, and then the mark says
/// nothing about a part of a run.
pub fn forget_peak() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// The mark, in bytes.
pub fn peak() -> Option<u64> {
    marked(&fs::read_to_string("/proc/self/status").ok()?)
}

fn marked(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_read() {
        assert_eq!(marked("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n"), Some(2_097_152));
        assert_eq!(marked("Name:\tx\n"), None);
    }
}
