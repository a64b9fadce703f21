//! Data of the calling program that the kernel's requests lack: its supplementary groups and
//! capabilities. The program waits for the answer, so `/proc` still has it.

use fuser::Request;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `CAP_FSETID`.
const FSETID: u32 = 4;

/// `CAP_SYS_ADMIN`.
const SYS_ADMIN: u32 = 21;

/// Whether the caller has `CAP_FSETID`: then its writes and truncations keep set-user-id and
/// set-group-id.
pub(crate) fn sets_any_id(request: &Request) -> bool {
    let dir = format!("/proc/{}", request.pid());
    let Ok(status) = std::fs::read_to_string(format!("{dir}/status")) else { return false };
    Caller::of(&status).sets_any_id && is_of_our_users(&dir)
}

/// Whether the caller has `CAP_SYS_ADMIN`, without which attributes in `trusted` are not listed.
pub(crate) fn sees_trusted(request: &Request) -> bool {
    let dir = format!("/proc/{}", request.pid());
    let Ok(status) = std::fs::read_to_string(format!("{dir}/status")) else { return false };
    Caller::of(&status).administers && is_of_our_users(&dir)
}

/// Whether the caller may leave set-group-id on a file of a group: it is in the group, or has
/// `CAP_FSETID` (`in_group_or_capable` of Linux). A caller that is not visible here counts as
/// having only the group with which it creates files, and no capabilities.
pub(crate) fn may_keep_setgid(request: &Request, gid: u32) -> bool {
    if request.gid() == gid {
        return true;
    }
    let dir = format!("/proc/{}", request.pid());
    let Ok(status) = std::fs::read_to_string(format!("{dir}/status")) else { return false };
    let caller = Caller::of(&status);
    // In another user namespace a capability applies only to ids mapped there.
    caller.groups.contains(&gid) || caller.sets_any_id && is_of_our_users(&dir)
}

/// Whether the caller is the superuser, or the user of this server.
pub(crate) fn is_in_charge(request: &Request) -> bool {
    let own = std::fs::metadata("/proc/self").map(|process| process.uid());
    request.uid() == 0 || own.is_ok_and(|own| own == request.uid())
}

fn is_of_our_users(dir: &str) -> bool {
    let users = |dir: &str| std::fs::read_link(Path::new(dir).join("ns/user")).ok();
    users(dir).is_some_and(|theirs| users("/proc/self") == Some(theirs))
}

/// A program, parsed from its `/proc/PID/status`.
#[derive(PartialEq, Eq, Clone, Debug, Default)]
struct Caller {
    groups: Vec<u32>,
    sets_any_id: bool,
    administers: bool,
}

impl Caller {
    fn of(status: &str) -> Self {
        let mut caller = Self::default();
        for line in status.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            match name {
                "Groups" => {
                    caller.groups =
                        value.split_whitespace().filter_map(|gid| gid.parse().ok()).collect();
                }
                "CapEff" => {
                    let all = u64::from_str_radix(value.trim(), 16).unwrap_or(0);
                    caller.sets_any_id = all >> FSETID & 1 == 1;
                    caller.administers = all >> SYS_ADMIN & 1 == 1;
                }
                _ => {}
            }
        }
        caller
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_capabilities_are_read() {
        let status = "Name:\tsh\nUid:\t5\t5\t5\t5\nGroups:\t7 1000 \nCapEff:\t0000000000000010\n";
        let in_groups = Caller { groups: vec![7, 1000], ..Caller::default() };
        assert_eq!(Caller::of(status), Caller { sets_any_id: true, ..in_groups.clone() });
        let other = status.replace("0010", "ffef");
        assert_eq!(Caller::of(&other), in_groups);
        let root = status.replace("0010", "200010");
        assert_eq!(Caller::of(&root), Caller { sets_any_id: true, administers: true, ..in_groups });
        assert_eq!(Caller::of("Groups:\t\n"), Caller::default());
    }
}
