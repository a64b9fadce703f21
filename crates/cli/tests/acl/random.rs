//! Random sequences of commands.

use super::{SHAPES, Twins, ready};
use std::fmt::Write;

/// Number of sequences for each shape of images, and of commands in each.
const SEQUENCES: usize = 8;
const COMMANDS: usize = 14;

/// Linear congruential generator (Lehmer 1951).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

const USERS: &[&str] = &["root", "root", "bound", "ann", "ann", "bob", "cid"];
const UMASKS: &[&str] = &["000", "022", "022", "027", "077", "002", "010", "707"];
const NAMES: &[&str] = &["a", "b", "c", "d", "e", "d/a", "d/b", "d/d", "d/d/a", "e/a", "e/d", "."];
const PERMS: &[&str] = &["---", "r--", "-w-", "--x", "rw-", "r-x", "rwx", "-wx"];
const MODES: &[&str] = &[
    "644", "640", "600", "755", "2755", "2745", "6770", "1777", "000", "070", "g+s", "g-x", "o=",
    "u-r", "a+rwx", "4711",
];

fn entry(random: &mut Random) -> String {
    let perm = random.of(PERMS);
    let who = random.of(&[
        "u:1000", "u:1001", "u:1002", "u:0", "g:2000", "g:2001", "g:1000", "u:", "g:", "o:", "m:",
    ]);
    format!("{who}:{perm}")
}

fn entries(random: &mut Random) -> String {
    let count = 1 + random.below(3);
    let all: Vec<String> = (0..count).map(|_| entry(random)).collect();
    all.join(",")
}

fn command(random: &mut Random) -> String {
    let name = random.of(NAMES);
    match random.below(24) {
        0..3 => format!("chmod {} {name}", random.of(MODES)),
        3..7 => {
            let no_mask = if random.chance(4) { "-n " } else { "" };
            format!("setfacl {no_mask}-m {} {name}", entries(random))
        }
        7..9 => format!("setfacl -d -m {} {name}", entries(random)),
        9 => format!("setfacl -x u:1000,g:2000 {name}"),
        10 => format!("setfacl -b {name}"),
        11 => format!("setfacl -k {name}"),
        12 => {
            let [u, g, o] = [0; 3].map(|_| random.of(PERMS));
            format!("setfacl --set u::{u},g::{g},o::{o} {name}")
        }
        13..16 => format!("sh -c ': > {name}'"),
        16..18 => format!("mkdir {name}"),
        18 if random.chance(2) => format!("mknod {name} p"),
        18 => format!("mknod -m {} {name} p", random.of(&["644", "2775", "600"])),
        19 => format!("ln {name} {}", random.of(NAMES)),
        20 if random.chance(2) => format!("ln -s {} {name}", random.of(NAMES)),
        20 => format!("sh -c 'echo more >> {name}'"),
        21..23 => {
            let owner = random.of(&["0", "1000", "1001", "1002", ""]);
            let group = random.of(&["0", "1000", "2000", "2001"]);
            format!("chown {owner}:{group} {name}")
        }
        _ => format!("mv -T {name} {}", random.of(NAMES)),
    }
}

/// A script of random sequences, each in a directory of its own, and a script that shows the
/// results.
fn scripts(seed: u64) -> (String, String) {
    let (mut text, mut shows) = (String::new(), String::new());
    let mut random = Random(seed);
    for n in 0..SEQUENCES {
        let mode = random.of(&["777", "2777", "755", "1777"]);
        let _ = writeln!(
            text,
            "mkdir s{n}; chown 1000:2000 s{n}; chmod {mode} s{n}; cd s{n}; as ann 022 mkdir d; as ann 022 touch a d/a; as ann 002 mkdir e"
        );
        for _ in 0..COMMANDS {
            let (user, umask) = (random.of(USERS), random.of(UMASKS));
            let command = command(&mut random);
            let shown = command.replace('\'', "");
            let _ = writeln!(
                text,
                "as {user} {umask} {command} 2>/dev/null </dev/null; echo \"s{n} $? {user} {umask} {shown}\""
            );
            let _ = writeln!(text, "lists .");
        }
        let _ = writeln!(text, "cd ..\nshow s{n}");
        let _ = writeln!(shows, "show s{n}");
    }
    (text, shows)
}

#[test]
fn random_commands_end_as_under_the_kernel() {
    if !ready() {
        return;
    }
    let mut has_lists = false;
    for (seed, shape) in SHAPES.into_iter().enumerate() {
        let mut twins = Twins::new(shape);
        let (text, shows) = scripts(seed as u64 + 1);
        let said = twins.both(&text);
        // Enough of the commands succeed, and there are ACLs.
        let done =
            said.lines().filter(|line| line.starts_with('s') && line.contains(" 0 ")).count();
        assert!(done > SEQUENCES * COMMANDS / 4, "{done} commands succeeded");
        has_lists |= said.contains("\ndefault:") && said.contains("\nmask::");
        twins.end(&shows);
    }
    assert!(has_lists, "no lists");
}
