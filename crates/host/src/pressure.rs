//! The load of the machine: pressure stall information (`Documentation/accounting/psi.rst`), load
//! average, power supplies.

use std::fs;
use std::path::Path;

/// A resource that processes wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// Reads and writes.
    Io,
    /// A processor.
    Cpu,
}

/// The share of the last 10 seconds in which some process waited for the resource, in percent;
/// `None` on a kernel without CONFIG_PSI (since Linux 4.20).
#[must_use]
pub fn waiting(resource: Resource) -> Option<f64> {
    let name = match resource {
        Resource::Io => "io",
        Resource::Cpu => "cpu",
    };
    some(&fs::read_to_string(Path::new("/proc/pressure").join(name)).ok()?)
}

fn some(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split(' ').find_map(|field| field.strip_prefix("avg10="))?.parse().ok()
}

/// Load average of the last minute, in processes per processor, running or waiting for a disk; 0 if
/// /proc/loadavg cannot be read.
#[must_use]
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    load / processors as f64
}

/// Whether the machine runs on a battery: it has a supply from the mains, and none is online
/// (`Documentation/ABI/testing/sysfs-class-power`). False for a machine without any, as most
/// servers.
#[must_use]
pub fn is_on_battery() -> bool {
    on_battery(Path::new("/sys/class/power_supply"))
}

fn on_battery(supplies: &Path) -> bool {
    let Ok(entries) = fs::read_dir(supplies) else { return false };
    let mut mains = 0;
    for path in entries.flatten().map(|entry| entry.path()) {
        let read = |name| fs::read_to_string(path.join(name)).unwrap_or_default();
        if !matches!(read("type").trim(), "Mains" | "USB" | "Wireless") {
            continue;
        }
        match read("online").trim() {
            "0" => mains += 1,
            "" => {}
            _ => return false,
        }
    }
    mains > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read() {
        let text = "some avg10=1.25 avg60=0.41 avg300=0.10 total=86\nfull avg10=0.50 avg60=0.00\n";
        assert_eq!(some(text), Some(1.25));
        assert_eq!(some("full avg10=0.50"), None);
        assert!(waiting(Resource::Io).is_none_or(|percent| (0.0..=100.0).contains(&percent)));
        assert!(load() >= 0.0);
    }

    #[test]
    fn a_battery_alone_is_no_mains() {
        let dir = tempfile::tempdir().unwrap();
        let set = |name: &str, kind: &str, online: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("type"), kind).unwrap();
            if !online.is_empty() {
                fs::write(path.join("online"), online).unwrap();
            }
        };
        assert!(!on_battery(dir.path()), "neither");
        set("BAT0", "Battery\n", "");
        assert!(!on_battery(dir.path()), "no supply that could be offline");
        set("AC", "Mains\n", "0\n");
        assert!(on_battery(dir.path()));
        set("USB0", "USB\n", "1\n");
        assert!(!on_battery(dir.path()));
    }
}
