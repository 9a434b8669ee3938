//! The machine, as far as it matters to figures. Nothing that names it.

use std::fs;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cores: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
}

impl Machine {
    pub fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: field(&read("/proc/cpuinfo"), "model name").map(str::to_owned),
            memory_bytes: field(&read("/proc/meminfo"), "MemTotal").and_then(kilobytes),
            kernel: Some(read("/proc/sys/kernel/osrelease").trim().to_owned()).filter(|kernel| !kernel.is_empty()),
        }
    }

    /// One line for a report.
    pub fn describe(&self) -> String {
        let memory = self.memory_bytes.map(|bytes| format!("{:.0} GB of memory", bytes as f64 / 1e9));
        let kernel = self.kernel.as_ref().map(|kernel| format!("Linux {kernel}"));
        let parts = [Some(format!("{} cores", self.cores)), self.cpu.clone(), memory, kernel];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

fn kilobytes(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc_are_read() {
        assert_eq!(field("processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\n", "model name"), Some("Fast CPU @ 3 GHz"));
        assert_eq!(field("MemTotal:       16 kB\n", "MemTotal").and_then(kilobytes), Some(16_384));
        assert_eq!(field("", "MemTotal"), None);
    }
}
