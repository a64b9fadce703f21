//! Options that need another one, which other arguments exclude: none of them is ignored.

use super::{errors, run, workshop};
use std::fs;

#[test]
fn no_option_is_ignored_where_what_it_needs_is_excluded() {
    let scratch = workshop("contradictions");
    let dir = scratch.path();
    let commands = [
        ("snapshot rm disk.img one --keep-files", "--all"),
        ("optimize disk.img --trace job.trace --dry-run -o new.img", "--in-place"),
        ("optimize disk.img --trace job.trace --undo undo -o new.img", "--in-place"),
        ("optimize disk.img --trace job.trace --budget 1M -o new.img --force", "--in-place"),
        ("optimize disk.img --trace job.trace --in-place --like-strict", "--like"),
        ("optimize disk.img --trace job.trace --in-place --freed keep", "--like"),
        ("optimize disk.img --trace job.trace --inode-size 512 -o n --move-budget 1M", "--like"),
        ("build tree -o new.img --share --like-strict", "--like"),
        ("build tree -o new.img --share --trace job.trace --move-budget 1M", "--like"),
        ("build tree -o new.img --verity --esp tree", "--disk"),
        ("age disk.img --any-directory", "--mounted"),
        ("age --mounted mnt --force", "--output"),
        ("trace import --paths files --image disk.img", "--blocks"),
        ("trace import --paths files --cwd /", "--strace"),
        ("record --until-time 5s -o new.trace -- true", "--boot"),
        ("record --boot --recorder seekless", "--install-boot"),
    ];
    for (command, needed) in commands {
        let args: Vec<&str> = command.split(' ').collect();
        let output = run(dir, &args);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        assert!(said.contains(needed), "{command}: {said}");
    }
    let made = fs::read_dir(dir).expect("directory").map(|entry| entry.expect("entry").file_name());
    let made: Vec<_> = made.filter(|name| name.to_string_lossy().starts_with('n')).collect();
    assert!(made.is_empty(), "{made:?}");
}
