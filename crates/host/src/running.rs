//! Running programs (`/proc/PID/exe`, proc_pid_exe(5)).

use crate::mounts::DeviceNumber;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The inode numbers of a device's programs that run now, as far as this process may see: the
/// kernel refuses to open them for writing (`ETXTBSY`). Kernel threads have none.
#[must_use]
pub fn programs_of(device: DeviceNumber) -> BTreeSet<u64> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    processes
        .filter(|entry| entry.file_name().to_str().is_some_and(is_process))
        // Follows the link to the file itself, in whichever namespace its path is.
        .filter_map(|entry| fs::metadata(entry.path().join("exe")).ok())
        .filter(|program| DeviceNumber::from_stat(program.dev()) == device)
        .map(|program| program.ino())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_runs() {
        let own = fs::metadata("/proc/self/exe").unwrap();
        let device = DeviceNumber::from_stat(own.dev());
        assert!(programs_of(device).contains(&own.ino()));
        assert!(programs_of(DeviceNumber { major: 0, minor: 0 }).is_empty());
    }
}
