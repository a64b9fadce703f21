//! Capabilities of files (`capabilities(7)`): the attribute `security.capability`, from texts such
//! as `cap_net_raw,cap_chown+ep`.

use crate::list::shown;

/// The name of the extended attribute.
pub(super) const NAME: &[u8] = b"security.capability";

/// `VFS_CAP_REVISION_2` of `include/uapi/linux/capability.h`.
const REVISION_2: u32 = 0x0200_0000;

/// `VFS_CAP_FLAGS_EFFECTIVE`.
const EFFECTIVE: u32 = 1;

/// Names, by number.
const NAMES: &[&str] = &[
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];

/// An attribute with further capabilities. `old` is its value, or nothing.
pub(super) fn with(old: &[u8], text: &[u8]) -> Result<Vec<u8>, String> {
    let bad = || format!("'{}' is not a capability, such as cap_net_raw+ep", shown(text));
    let words = std::str::from_utf8(text).map_err(|_| bad())?;
    let (names, flags) = words.split_once(['+', '=']).ok_or_else(bad)?;
    let mut bits = 0u64;
    for name in names.split(',') {
        let plain = name.strip_prefix("cap_").ok_or_else(bad)?;
        let number = NAMES.iter().position(|known| *known == plain).ok_or_else(bad)?;
        bits |= 1 << number;
    }
    if flags.is_empty() || !flags.bytes().all(|flag| b"eip".contains(&flag)) {
        return Err(bad());
    }
    let field = |at: usize| {
        let bytes = old.get(at * 4..at * 4 + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes)
    };
    let both = |at: usize| u64::from(field(at)) | u64::from(field(at + 2)) << 32;
    let added = |flag: char| if flags.contains(flag) { bits } else { 0 };
    let permitted = both(1) | added('p');
    let inheritable = both(2) | added('i');
    let effective = (field(0) & EFFECTIVE) | u32::from(flags.contains('e'));
    let ([low, high], [low_inheritable, high_inheritable]) =
        (halves(permitted), halves(inheritable));
    let magic = (REVISION_2 | effective).to_le_bytes();
    Ok([magic, low, low_inheritable, high, high_inheritable].concat())
}

fn halves(value: u64) -> [[u8; 4]; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    [[a, b, c, d], [e, f, g, h]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_those_of_setcap() {
        // As `setcap cap_net_raw+ep FILE` and `setcap cap_net_raw,cap_bpf+eip FILE` write them.
        let raw = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(with(b"", b"cap_net_raw+ep").unwrap(), raw);
        let both = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0x80, 0, 0, 0];
        assert_eq!(with(&raw, b"cap_bpf+eip").unwrap(), both);
        for text in ["net_raw+ep", "cap_net_raw", "cap_net_raw+x", "cap_nothing+ep", "+ep"] {
            assert!(with(b"", text.as_bytes()).is_err(), "{text}");
        }
    }
}
