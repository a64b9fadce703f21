//! Cases written by hand.

use super::{EXT4, SHAPES, Twins, ready};

/// Regression: after `chmod 640` everybody could still read a file with an ACL.
#[test]
fn chmod_changes_the_list_with_the_mode() {
    if !ready() {
        return;
    }
    for shape in SHAPES {
        let mut twins = Twins::new(shape);
        let said = twins.both(
            "echo secret > g; chmod 644 g; setfacl -m u:1000:r g; chmod 640 g; getfacl -cn g
             as ann 022 cat g; as bob 022 cat g || echo refused",
        );
        assert!(said.contains("other::---") && said.ends_with("secret\nrefused\n"), "{said}");
        twins.end("getfacl -cn g; as bob 022 cat g || echo refused");
    }
}

/// Basic enforcement: ACLs grant access by owner, named user, group class and others, limited by
/// the mask; later entries do not override a denial.
#[test]
fn lists_decide_on_accesses() {
    if !ready() {
        return;
    }
    let mut twins = Twins::new(EXT4);
    let said = twins.both(
        "try() { for user in ann bob cid; do
             as $user 022 cat $1 >/dev/null 2>&1 && echo $user reads $1
             as $user 022 sh -c \": >> $1\" 2>/dev/null && echo $user writes $1
             as $user 022 $PWD/$1 2>/dev/null && echo $user runs $1
         done; true; }
         put() { printf '#!/bin/sh\\nexit 0\\n' > $1; chown $2 $1; chmod $3 $1; }
         put owner 1000:0 700; try owner
         put group 0:2000 070; try group
         put named 0:0 600; chacl u::rw-,g::---,u:1001:rwx,m::r-x,o::--- named; try named
         put groups 0:0 600; chacl u::rw-,g::---,g:2000:r--,g:2001:-w-,m::rwx,o::r-x groups; try groups
         put denied 0:0 644; setfacl -m u:1001:--- denied; try denied
         put lower 1000:0 644; setfacl -m u::---,u:1000:rwx lower; try lower
         put masked 0:0 640; setfacl -m u:1002:rwx masked; chmod g=- masked; try masked
         chmod g=rx masked; try masked
         chacl -l masked; chacl -B masked; chacl -l masked
         mkdir dir; setfacl -m u:1001:--x dir; chmod o= dir; touch dir/f
         for user in ann bob cid; do as $user 022 stat -c %n dir/f 2>/dev/null; as $user 022 ls dir 2>/dev/null; done; true",
    );
    for expected in ["bob reads named", "bob runs named", "bob writes groups", "cid runs masked"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    for refused in ["bob writes named", "bob reads denied", "cid writes masked", "ann reads lower"]
    {
        assert!(!said.contains(refused), "{refused}: {said}");
    }
    twins.end("lists .");
}

/// New files in a directory with a default ACL inherit it, whatever the umask; new directories
/// inherit it as their default ACL too.
#[test]
fn default_lists_are_inherited() {
    if !ready() {
        return;
    }
    for shape in SHAPES {
        let mut twins = Twins::new(shape);
        let said = twins.both(
            "mkdir top; setfacl -d -m u:1001:rwx,g:2001:r-x top; setfacl -d -m o::--- top
             umask 077; mkdir -p top/one/two/three; touch top/file top/one/two/file
             mkfifo top/pipe; mknod top/disk b 7 9; ln -s file top/link
             mkdir -m 700 top/closed; sh -c 'umask 0; touch top/wide; mkdir top/open'
             lists .; stat -c '%n %a' top/*",
        );
        assert_eq!(said.matches("default:user:1001:rwx").count(), 6, "{said}");
        // The umask has no effect: the mask results from the default ACL and the mode of open(2).
        assert!(said.contains("top/file 660"), "{said}");
        // Without a default ACL the umask applies.
        let said = twins.both("setfacl -k top; umask 027; touch top/new; mkdir top/fresh; stat -c %a top/new top/fresh; getfacl -c top/new");
        assert!(said.starts_with("640\n750\n"), "{said}");
        twins.end("lists .");
    }
}

/// Setting an ACL clears set-group-id if the caller is neither in the file's group nor has the
/// capability.
#[test]
fn set_group_id_goes_with_a_list_from_outside_the_group() {
    if !ready() {
        return;
    }
    let mut twins = Twins::new(EXT4);
    let mut text = String::from(
        "try() { touch f; chown 1000:$1 f; chmod 2755 f; shift; \"$@\"; stat -c %a f; }\n",
    );
    for list in
        ["u::rwx,g::rwx,o::rwx", "u::rwx,g::r-x,m::r-x,o::r-x", "u::rwx,u:5:r,g::rx,m::rx,o::-"]
    {
        for group in ["1000", "2000", "2001"] {
            text += &format!("try {group} as ann 022 setfacl --set {list} f\n");
            text += &format!("try {group} as root 022 setfacl --set {list} f\n");
            text += &format!("try {group} as bound 022 setfacl --set {list} f\n");
        }
    }
    text += "try 2001 as ann 022 setfacl -b f; try 2000 as ann 022 setfacl -x u:5 f 2>&1\n";
    text += "try 2001 as ann 022 setfacl -m u:5:r f; try 2001 as ann 022 chmod 2750 f\n";
    // Group membership in a user namespace: the ids are shifted, the group is the same.
    text += "try 2001 setpriv --reuid 1000 --regid 1000 --clear-groups unshare -r setfacl -m u:0:rwx f\n";
    text += "try 1000 setpriv --reuid 1000 --regid 1000 --clear-groups unshare -r setfacl -m u:0:rwx f\n";
    let said = twins.both(&text);
    assert!(said.contains("2755") && said.contains("\n755\n"), "{said}");
    twins.end("getfacl -n f");
}

/// A default ACL that is equivalent to a mode leaves no access ACL on new files.
#[test]
fn a_minimal_default_list_leaves_no_attribute() {
    if !ready() {
        return;
    }
    for shape in SHAPES {
        let mut twins = Twins::new(shape);
        let said = twins.both(
            "mkdir d; setfacl -d -m u::rwx,g::rx,o::--- d; touch d/f; mkdir d/s
             getfattr -m - d/f; getfattr -m - d/s; getfacl -cn d/f d/s
             touch m; setfacl -m u:1000:r m; setfacl -x u:1000 m; setfacl -x m m; getfattr -m - m; stat -c %a m
             setfacl -m u:1000:rw m; chacl u::rw-,g::r--,o::--- m; getfattr -m - m; stat -c %a m",
        );
        assert!(!said.contains("posix_acl_access"), "{said}");
        assert_eq!(said.matches("posix_acl_default").count(), 1, "{said}");
        twins.end("lists .; find . | LC_ALL=C sort | xargs getfattr -h -m -");
    }
}

/// Only the owner sets and removes ACLs. Setting one changes ctime, but not mtime. An empty ACL,
/// and the removal of an absent one, have the kernel's results. (Cases of xfstests generic/237, 307
/// and 529.)
#[test]
fn lists_belong_to_the_owner_and_change_the_inode() {
    if !ready() {
        return;
    }
    for shape in SHAPES {
        let mut twins = Twins::new(shape);
        let said = twins.both(
            "touch f; chown 1000:1000 f; chmod 640 f
             as bob 022 setfacl -m u:1001:rwx f 2>/dev/null || echo refused
             as ann 022 setfacl -m u:1001:r f && getfacl -cn f
             as bob 022 setfacl -b f 2>/dev/null || echo refused
             changed=$(stat -c %z f); modified=$(stat -c %y f); sleep 1.1
             setfacl -m u:1002:rw f
             [ \"$changed\" != \"$(stat -c %z f)\" ] && echo changed
             [ \"$modified\" = \"$(stat -c %y f)\" ] && echo not modified
             changed=$(stat -c %z f); sleep 1.1; setfacl -b f
             [ \"$changed\" != \"$(stat -c %z f)\" ] && echo removed
             cat > put.py <<'END'
import os
access = 'system.posix_acl_access'
for name, value in [('f', b'\\2\\0\\0\\0'), ('f', b''), ('f', b'\\2\\0\\0'), ('.', b'\\2\\0\\0\\0')]:
    try:
        os.setxattr(name, access, value)
        print(name, value, 'set', oct(os.stat('f').st_mode))
    except OSError as error:
        print(name, value, error.errno)
for kind in ['access', 'default']:
    try:
        os.removexattr('f', 'system.posix_acl_' + kind)
        print(kind, 'removed')
    except OSError as error:
        print(kind, error.errno)
END
             python3 put.py; rm put.py; getfattr -m - f; stat -c %a f",
        );
        assert_eq!(said.matches("refused").count(), 2, "{said}");
        assert!(said.contains("\nchanged\nnot modified\nremoved\n"), "{said}");
        twins.end("getfacl -cn f");
    }
}

/// Directories that are searchable by their ACL only, and ACLs with other user ids. (Cases of
/// xfstests generic/053, 105 and 318.)
#[test]
fn directories_are_searched_by_their_lists() {
    if !ready() {
        return;
    }
    let mut twins = Twins::new(EXT4);
    let said = twins.both(
        "mkdir -p top/sub; echo deep > top/sub/f; chmod 711 top; chmod 700 top/sub
         look() { as $1 022 cat top/sub/f 2>&1 | sed 's/.*: //'; as $1 022 ls top/sub 2>&1 | sed 's/.*: //'; }
         look bob; setfacl -m u:1001:x top/sub; look bob; setfacl -m u:1001:rx top/sub; look bob
         chmod g-x top/sub; look bob; chmod g+x top/sub; setfacl -m o::rx top/sub; setfacl -m u:1001:- top/sub
         look bob; look cid
         mkdir m; chown 1000:1000 m; chmod 700 m; setfacl -m u:1001:rwx,d:u:1001:rwx m
         as bob 022 touch m/made && stat -c '%u %a' m/made && getfacl -cn m/made
         as bob 022 chmod 600 m/made; getfacl -cn m/made
         inside() { setpriv --reuid 1000 --regid 1000 --clear-groups unshare --map-root-user \"$@\"; }
         inside getfacl -cn m/made; inside setfacl -m u:0:r m/made 2>/dev/null || echo refused
         inside touch m/own; inside setfacl -m u:0:r m/own; getfacl -cn m/own
         inside setfacl -m u:7:r m/own 2>/dev/null || echo no such user there; getfacl -cn m/own",
    );
    assert!(said.contains("deep") && said.contains("Permission denied"), "{said}");
    assert!(said.contains("no such user there") && said.contains("refused"), "{said}");
    twins.end("lists .");
}

/// Creation with set-group-id in a directory of a group that the caller is not in: the bit is
/// cleared even if the default ACL removes the group's execute permission.
#[test]
fn set_group_id_goes_at_creation() {
    if !ready() {
        return;
    }
    let mut twins = Twins::new(EXT4);
    let make = "import os,sys\nos.umask(int(sys.argv[1],8))\nfor n,m in enumerate([0o2770,0o2070,0o2010,0o2755,0o2744]):\n os.close(os.open(f'{sys.argv[2]}/f{n}', os.O_CREAT|os.O_EXCL|os.O_RDWR, m))\n os.mknod(f'{sys.argv[2]}/p{n}', m|0o010000)\n os.mkdir(f'{sys.argv[2]}/d{n}', m)\n";
    let mut text = String::new();
    for (n, list) in
        ["u::rwx,g::rw,o::rwx,m::rw", "u::rwx,g::rwx,o::rwx,m::rwx", "u::rwx,g::rw,o::r", ""]
            .iter()
            .enumerate()
    {
        for user in ["ann", "bob", "cid", "root", "bound"] {
            for umask in ["000", "010", "077"] {
                let dir = format!("d{n}{user}{umask}");
                text += &format!("mkdir {dir}; chown 0:2000 {dir}; chmod 2777 {dir}\n");
                if !list.is_empty() {
                    text += &format!("setfacl -d -m {list} {dir}\n");
                }
                text += &format!("as {user} 022 python3 -c \"{make}\" {umask} {dir}\n");
            }
        }
    }
    text += "find . | LC_ALL=C sort | xargs stat -c '%n %a %u:%g'; lists .";
    let said = twins.both(&text);
    assert!(said.contains("/f0 2") && said.contains("/f0 7"), "{said}");
    twins.end("lists .");
}

/// A malformed ACL is refused, and changes nothing.
#[test]
fn malformed_lists_are_refused() {
    if !ready() {
        return;
    }
    let mut twins = Twins::new(EXT4);
    let mut text = String::from("touch f; ln -s f l; mkdir d; chmod 640 f\n");
    // Entries for owner, group, others, mask and the user with id 5: lists that lack one, are
    // unsorted, or are truncated.
    let (u, g, o) = ("0100060000000000", "0400040000000000", "2000000000000000");
    let (m, user) = ("1000040000000000", "0200060005000000");
    let version = "02000000";
    for entries in [
        [u, g, o].concat(),
        [u, g].concat(),
        [g, u, o].concat(),
        [u, user, g, o].concat(),
        [u, user, g, m, o].concat(),
        [u, user, g, m, m, o].concat(),
        [u, g, user, m, o].concat(),
        [u, g, &o[..14]].concat(),
        [u, &g.replace("0400", "0300"), o].concat(),
        [u, &g.replace("040004", "040009"), o].concat(),
        String::new(),
    ] {
        for kind in ["access", "default"] {
            for file in ["f", "d"] {
                text += &format!(
                    "setfattr -n system.posix_acl_{kind} -v 0x{version}{entries} {file} 2>/dev/null; echo $? {file} {kind} {entries}\n"
                );
            }
        }
        text += "getfacl -n f d; stat -c %a f d\n";
    }
    text += "setfacl -m u:5:r l; as ann 022 setfacl -m u:1000:rwx f 2>/dev/null; echo $?; getfacl -n f l";
    let said = twins.both(&text);
    assert!(said.contains("1 f access") && said.contains("0 d default"), "{said}");
    twins.end("lists .");
}
