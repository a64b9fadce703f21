//! `seekless record --install-boot` and `--remove-boot` on the tree of a system that is not
//! running, and the options that they refuse.

#[path = "judges/mod.rs"]
mod judges;

use judges::{Scratch, command, failure, ready, run, seekless, skip, text};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

const INITRAMFS_TOOLS: &str = "usr/share/initramfs-tools/hook-functions";
const DRACUT: &str = "usr/lib/dracut/dracut-functions.sh";

fn put(root: &Path, path: &str, contents: &str, mode: u32) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, contents).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A system with these files.
fn system(scratch: &Scratch, files: &[&str]) -> PathBuf {
    let root = scratch.path().join("system");
    put(&root, "etc/hostname", "box\n", 0o644);
    files.iter().for_each(|file| put(&root, file, "# of the package\n", 0o644));
    root
}

/// All paths below a directory, with modes and contents.
fn snapshot(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let contents = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            if meta.is_dir() {
                left.push(path.clone());
            }
            found.insert(path, (meta.mode(), contents));
        }
    }
    found
}

fn install(root: &Path, args: &[&str]) -> Output {
    // The program that is tested is not static, and is said to be wanted all the same.
    let program = env!("CARGO_BIN_EXE_seekless");
    let root = root.to_str().unwrap();
    let begin = ["record", "--install-boot", "--recorder", program, "--root", root];
    seekless(&[&begin[..], args].concat())
}

fn remove(root: &Path, args: &[&str]) -> Output {
    let begin = ["record", "--remove-boot", "--root", root.to_str().unwrap()];
    seekless(&[&begin[..], args].concat())
}

#[test]
fn a_removal_leaves_what_was_there_before_the_installation() {
    let cases = [
        (
            INITRAMFS_TOOLS,
            "etc/initramfs-tools/scripts/init-bottom/seekless",
            "etc/initramfs-tools/scripts/init-top/seekless",
            "etc/initramfs-tools/hooks/seekless",
        ),
        (
            DRACUT,
            "usr/lib/dracut/modules.d/90seekless/record.sh",
            "usr/lib/dracut/modules.d/90seekless/early.sh",
            "usr/lib/dracut/modules.d/90seekless/module-setup.sh",
        ),
    ];
    for (sign, starter, early, copier) in cases {
        let scratch = Scratch::new("install-boot");
        let root = system(&scratch, &[sign, "usr/lib/dracut/modules.d/99base/module-setup.sh"]);
        let before = snapshot(&root);
        text(&install(&root, &["--no-rebuild"]));
        // A second installation, with other options: nothing of the first may remain.
        let unit = "it's a \"unit\" $HOME.service";
        text(&install(&root, &["--no-rebuild", "--", "--until-unit", unit]));
        for script in [starter, early, copier] {
            let script = root.join(script);
            assert_eq!(script.metadata().unwrap().mode() & 0o7777, 0o755, "{script:?}");
            run("sh", &["-n".as_ref(), script.as_os_str()]);
        }
        let program = root.join("usr/lib/seekless/boot-recorder");
        assert_eq!(program.metadata().unwrap().mode() & 0o7777, 0o755);
        let same = fs::read(program).unwrap() == fs::read(env!("CARGO_BIN_EXE_seekless")).unwrap();
        assert!(same, "the program is not a copy of the one that installs");
        // The shell passes the options on unchanged.
        let script = fs::read_to_string(root.join(starter)).unwrap();
        let script = script.replace("/usr/lib/seekless/boot-recorder", "printf '<%s>\\n'");
        let told = judges_shell(&script);
        let wanted = "<record>\n<--boot>\n<--mount>\n</new root>\n<--until-unit>\n";
        assert_eq!(told, format!("{wanted}<{unit}>\n"));

        text(&remove(&root, &["--no-rebuild"]));
        assert_eq!(snapshot(&root), before, "{sign}");
    }
}

#[test]
fn libraries_are_put_into_an_initramfs_only_if_that_is_wanted() {
    let scratch = Scratch::new("install-static");
    let root = system(&scratch, &[INITRAMFS_TOOLS]);
    let before = snapshot(&root);
    let root_path = root.to_str().unwrap();
    // A copy that has no static one beside it.
    let alone = scratch.join("a/debug/seekless");
    fs::create_dir_all(scratch.path().join("a/debug")).unwrap();
    put(scratch.path(), "a/CACHEDIR.TAG", "", 0o644);
    fs::copy(env!("CARGO_BIN_EXE_seekless"), &alone).unwrap();
    let args = ["record", "--install-boot", "--no-rebuild", "--root", root_path];
    let installed = |more: &[&str]| {
        std::process::Command::new(&alone).args([&args[..], more].concat()).output().unwrap()
    };
    let (code, message) = failure(&installed(&[]));
    assert!(code == 2 && message.contains("--recorder"), "{code}: {message}");
    assert_eq!(snapshot(&root), before);
    let script = scratch.join("script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    let (code, message) = failure(&installed(&["--recorder", &script]));
    assert!(code == 2 && message.contains("not a program"), "{code}: {message}");
    assert_eq!(snapshot(&root), before);
    let (empty, library) = (scratch.join("empty.c"), scratch.join("library.so"));
    fs::write(&empty, "int library;\n").unwrap();
    run("cc", &["-shared", "-nostdlib", &empty, "-o", &library]);
    let (code, message) = failure(&installed(&["--recorder", &library]));
    assert!(code == 2 && message.contains("not a program"), "{code}: {message}");

    let output = installed(&["--recorder", &alone]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("not static"), "{output:?}");
    text(&output);
    text(&remove(&root, &["--no-rebuild"]));

    // A static program of this version is found where it is built.
    let machine = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let built = scratch.path().join("a").join(machine).join("static/seekless");
    fs::create_dir_all(built.parent().unwrap()).unwrap();
    for (version, is_taken) in [(env!("CARGO_PKG_VERSION"), true), ("0.0.9", false)] {
        let source = scratch.join("program.c");
        let program =
            format!("#include <stdio.h>\nint main(void) {{ puts(\"seekless {version}\"); }}\n");
        fs::write(&source, program).unwrap();
        run("cc", &["-static", &source, "-o", built.to_str().unwrap()]);
        fs::set_permissions(&built, fs::Permissions::from_mode(0o755)).unwrap();
        let output = installed(&[]);
        assert_eq!(output.status.success(), is_taken, "{output:?}");
        if is_taken {
            assert!(!String::from_utf8_lossy(&output.stderr).contains("not static"), "{output:?}");
            let put = fs::read(root.join("usr/lib/seekless/boot-recorder")).unwrap();
            assert!(put == fs::read(&built).unwrap(), "another program");
            assert!(String::from_utf8_lossy(&output.stdout).contains("static/seekless"));
            text(&remove(&root, &["--no-rebuild"]));
            fs::set_permissions(&built, fs::Permissions::from_mode(0o775)).unwrap();
            assert_eq!(failure(&installed(&[])).0, 2, "others may write to it");
        }
        assert_eq!(snapshot(&root), before);
    }
}

/// Output of a script with the root mounted on `/new root`.
fn judges_shell(script: &str) -> String {
    let output = std::process::Command::new("sh")
        .args(["-c", script])
        .envs([("rootmnt", "/new root"), ("NEWROOT", "/new root"), ("HOME", "/elsewhere")])
        .output();
    text(&output.unwrap())
}

#[test]
fn other_peoples_files_stay_as_they_are() {
    let hook = "etc/initramfs-tools/hooks/seekless";
    for foreign in [hook, "usr/lib/seekless/boot-recorder"] {
        let scratch = Scratch::new("install-foreign");
        let root = system(&scratch, &[INITRAMFS_TOOLS, foreign]);
        let before = snapshot(&root);
        let (code, message) = failure(&install(&root, &["--no-rebuild"]));
        assert!(code == 6 && message.contains(foreign), "{code}: {message}");
        assert_eq!(snapshot(&root), before);
    }

    // A foreign file in place of ours is not removed, and a directory that is used by others
    // meanwhile stays.
    let scratch = Scratch::new("remove-foreign");
    let root = system(&scratch, &[INITRAMFS_TOOLS]);
    text(&install(&root, &["--no-rebuild"]));
    let ours = fs::read_to_string(root.join(hook)).unwrap();
    put(&root, hook, "#!/bin/sh\n", 0o755);
    let (code, message) = failure(&remove(&root, &["--no-rebuild"]));
    assert!(code == 6 && message.contains(hook), "{code}: {message}");
    put(&root, hook, &ours, 0o755);
    put(&root, "etc/initramfs-tools/hooks/other", "#!/bin/sh\n", 0o755);
    text(&remove(&root, &["--no-rebuild"]));
    let left: Vec<_> = fs::read_dir(root.join("etc/initramfs-tools"))
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["hooks"]);
}

#[test]
fn what_cannot_be_installed_is_refused_and_nothing_is_written() {
    let scratch = Scratch::new("install-refused");
    let check = |root: &Path, args: &[&str], code: i32, why: &str| {
        let before = snapshot(root);
        let (got, message) = failure(&install(root, args));
        assert!(got == code && message.contains(why), "{args:?}: {got}: {message}");
        assert_eq!(snapshot(root), before, "{args:?}");
    };
    let root = system(&scratch, &[]);
    check(&root, &["--no-rebuild"], 4, "neither initramfs-tools nor dracut");
    put(&root, DRACUT, "", 0o644);
    check(&root, &["--no-rebuild", "--initramfs", "initramfs-tools"], 4, "not installed");
    put(&root, INITRAMFS_TOOLS, "", 0o644);
    check(&root, &["--no-rebuild"], 2, "--initramfs");
    let options = [
        (&["--until-idle", "soon"][..], "--until-idle"),
        (&["-o", "boot.trace"], "absolute"),
        (&["-o", "-"], "standard output"),
        (&["--mount", "/srv"], "--mount"),
        (&["--source", "fanotify"], "tracefs"),
        (&["--read-ahead", "1M"], "read-ahead"),
        (&["--install-boot"], "--boot"),
    ];
    for (options, why) in options {
        let args = [&["--no-rebuild", "--initramfs", "dracut", "--"], options].concat();
        check(&root, &args, 2, why);
    }
    // Files of another root must not be written through a symlink that leads out of it.
    let outside = scratch.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, root.join("etc/initramfs-tools")).unwrap();
    check(&root, &["--no-rebuild", "--initramfs", "initramfs-tools"], 6, "leads out of");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);

    let (code, message) = failure(&remove(&root, &[]));
    assert!(code == 6 && message.contains("no recorder"), "{code}: {message}");
    put(&root, "usr/lib/seekless/boot-recorder.receipt", "dracut\netc\n", 0o644);
    let (code, message) = failure(&remove(&root, &[]));
    assert!(code == 3 && message.contains("receipt"), "{code}: {message}");
}

/// Copies a shell and its libraries to a tree.
fn put_shell(root: &Path) {
    let listed = run("ldd", &["/bin/sh"]);
    let words = listed.split_whitespace().filter(|word| word.starts_with('/'));
    for file in words.chain(["/bin/sh"]) {
        let to = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(file, to).unwrap();
    }
}

#[test]
fn the_initramfs_is_made_by_the_systems_own_tool() {
    if run("id", &["-u"]).trim() != "0" {
        skip("chroot needs root");
        return;
    }
    if !ready("ldd") {
        return;
    }
    let scratch = Scratch::new("install-rebuild");
    let root = system(&scratch, &[INITRAMFS_TOOLS]);
    // Without the tool only the files are installed, with a warning.
    let output = install(&root, &[]);
    text(&output);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no program of initramfs-tools"));
    text(&remove(&root, &[]));

    put_shell(&root);
    let tool = "usr/sbin/update-initramfs";
    put(&root, tool, "#!/bin/sh\necho \"$@\" >>/made\n[ -e /etc/hostname ]\n", 0o755);
    text(&install(&root, &[]));
    assert_eq!(fs::read_to_string(root.join("made")).unwrap(), "-u -k all\n");
    text(&remove(&root, &[]));
    assert_eq!(fs::read_to_string(root.join("made")).unwrap(), "-u -k all\n-u -k all\n");

    put(&root, tool, "#!/bin/sh\necho 'no kernel' >&2\nexit 3\n", 0o755);
    let before = snapshot(&root);
    let (code, message) = failure_after_note(&install(&root, &[]));
    assert!(code == 6 && message.contains("no kernel"), "{code}: {message}");
    assert_eq!(snapshot(&root), before, "an installation that failed has left something");
}

/// Exit code, and last line of the standard error of a failed command.
fn failure_after_note(output: &Output) -> (i32, String) {
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), message.lines().last().unwrap_or_default().into())
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    for args in [
        &["--boot", "--pid", "1"][..],
        &["--boot", "--", "true"],
        &["--boot", "--boot-unit", "some.target"],
        &["--boot", "-o", "relative.trace"],
        &["--boot", "--source", "fanotify"],
        &["--boot", "--read-ahead", "256K"],
        &["--boot", "--until-time", "5 weeks"],
        &["--until-idle", "5s", "-o", "/nowhere/trace"],
        &["--install-boot", "--remove-boot"],
        &["--root", "/nowhere", "-o", "/nowhere/trace"],
        &["-o", "-", "--", "true"],
        &[],
    ] {
        let output = command(&["record"]).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
    }
}

#[test]
fn a_recorder_that_cannot_start_is_not_taken_for_one_that_records() {
    let args = ["record", "--boot", "--mount", "/there/is/no/such/root", "-o", "/nowhere/trace"];
    let (code, message) = failure_after_note(&seekless(&args));
    assert!(code == 6 && message.contains("could not start"), "{code}: {message}");
}
