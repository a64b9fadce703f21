//! Saved results of `seekless lab`: tables that other programs read, and every completed run,
//! whatever happens to the disk or to the process.

#[path = "../judges/mod.rs"]
mod judges;
mod wrong;

use judges::{Mounted, Scratch, can_mount, command, failure, ready, run, seekless, text};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Two workloads, one with much larger results than the other.
const EXPERIMENT: &str = r#"
name = "tiny"
summary = "two small trees"
policies = ["old-dirpref", "orlov"]
disciplines = ["normal", "async"]
seeds = [1]
[[workload]]
name = "few"
kind = "untar-rm"
tree = { kind = "flat", directories = 3, files = 9, len = 100 }
[[workload]]
name = "many"
kind = "untar-rm"
tree = { kind = "ports", directories = 400, files = 900, categories = 20 }
[[system]]
name = "s"
drive = "ide-8gb"
queue = 256
format = { kind = "ufs1", size = "2G", block = "8K", fragment = "1K", blocks = "blkpref", blocks_per_group = 1024, reallocblks = false }
cache = { size = "1M", cluster = "64K", ages = [28, 29, 30] }
cpu = { change = "100us", look = "20us", copy = "100M", unpack = "15M" }
"#;
/// Two workloads, two disciplines and two policies.
const RUNS: usize = 8;

/// A scratch directory with the experiment, and `lab run` of it.
struct Lab {
    scratch: Scratch,
    file: String,
}

impl Lab {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let file = scratch.join("tiny.toml");
        fs::write(&file, EXPERIMENT).unwrap();
        Self { scratch, file }
    }

    fn args<'a>(&'a self, dir: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["lab", "run", &self.file, "-o", dir], more].concat()
    }

    /// Runs with temporary files in the scratch directory.
    fn run(&self, dir: &str, more: &[&str]) -> Output {
        let mut command = command(&self.args(dir, more));
        command.env("TMPDIR", self.scratch.path()).output().unwrap()
    }

    /// A directory with all results of an uninterrupted run.
    fn whole(&self) -> PathBuf {
        let dir = self.scratch.join("whole");
        text(&self.run(&dir, &[]));
        assert_eq!(runs_of(&dir).len(), RUNS);
        dir.into()
    }

    /// The directory of the runs that could not be saved.
    fn rescued(&self) -> PathBuf {
        let dirs = fs::read_dir(self.scratch.path()).unwrap().flatten();
        let ours = |name: &str| name.starts_with("seekless-lab-tiny-");
        let mut found = dirs.filter(|entry| ours(&entry.file_name().to_string_lossy()));
        found.next().expect("a directory of what found no room").path()
    }
}

/// The runs saved in a directory, by name.
fn runs_of(dir: impl AsRef<Path>) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().flatten();
    let file = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        name.starts_with("run-").then(|| (name, fs::read(entry.path()).unwrap()))
    };
    entries.filter_map(file).collect()
}

/// Inode numbers of the runs, which change if a run is written again.
fn inodes(dir: &str) -> BTreeMap<String, u64> {
    let inode = |name: String| {
        let inode = fs::metadata(Path::new(dir).join(&name)).unwrap().ino();
        (name, inode)
    };
    runs_of(dir).into_keys().map(inode).collect()
}

/// Fails unless a directory has all files of an uninterrupted run, byte for byte, and no temporary
/// ones. Notes of the runs that were requested differ.
fn same_as_whole(dir: &str, whole: &Path) {
    let names = |dir: &Path| {
        let names = fs::read_dir(dir).unwrap().flatten().map(|entry| entry.file_name());
        let is_note = |name: &OsString| name.to_string_lossy().starts_with("selection-");
        let names = names.filter(|name| !is_note(name));
        let mut names: Vec<_> = names.filter(|n| n != "ballast" && n != "lost+found").collect();
        names.sort();
        names
    };
    assert_eq!(names(Path::new(dir)), names(whole));
    for name in names(whole) {
        let [ours, theirs] = [Path::new(dir), whole].map(|dir| fs::read(dir.join(&name)).unwrap());
        assert!(ours == theirs, "{name:?} differs");
    }
}

/// Fills a file system, except for `leave` bytes.
fn fill(dir: &Path, leave: u64) {
    let mut file = fs::File::create(dir.join("ballast")).unwrap();
    while std::io::Write::write_all(&mut file, &[0; 1024]).is_ok() {}
    file.sync_all().ok();
    let len = file.metadata().unwrap().len();
    assert!(len > leave, "{len}");
    file.set_len(len - leave).unwrap();
    file.sync_all().unwrap();
}

/// Runs with room for some runs only.
fn fills_up(lab: &Lab, dir: &Path, whole: &Path) {
    fill(dir, 24 << 10);
    let dir = dir.to_str().unwrap();
    let output = lab.run(dir, &[]);
    assert!(!output.stdout.is_empty(), "what is over is shown");
    let (code, why) = failure(&output);
    assert_eq!(code, 5, "{why}");
    assert!(why.contains(" of 8 runs shown here are not in ") && why.contains("No space"), "{why}");
    let (kept, rescued, all) = (runs_of(dir), runs_of(lab.rescued()), runs_of(whole));
    assert!(!kept.is_empty() && !rescued.is_empty(), "{} {}", kept.len(), rescued.len());
    assert_eq!(kept.len() + rescued.len(), RUNS, "no run is lost, none is there twice");
    for (name, bytes) in kept.iter().chain(&rescued) {
        assert!(all[name] == *bytes, "{name} is not whole");
    }
    // With room again, only the missing runs are performed.
    let before = inodes(dir);
    fs::remove_file(Path::new(dir).join("ballast")).unwrap();
    text(&lab.run(dir, &[]));
    let after = inodes(dir);
    assert!(before.iter().all(|(name, inode)| after[name] == *inode));
    same_as_whole(dir, whole);
}

#[test]
fn a_full_disk_loses_no_run() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new("full-ext4");
    let whole = lab.whole();
    let image = lab.scratch.join("image");
    run("mke2fs", &["-q", "-t", "ext4", "-b", "1024", "-O", "^has_journal", &image, "1M"]);
    let mounted = Mounted::new(&lab.scratch, &image, "rw");
    fills_up(&lab, mounted.path(), &whole);
}

/// A file system in memory, unmounted on drop.
struct Tmpfs(String);

impl Tmpfs {
    fn new(lab: &Lab) -> Self {
        let at = lab.scratch.join("tmpfs");
        fs::create_dir(&at).unwrap();
        run("mount", &["-t", "tmpfs", "-o", "size=300k", "tmpfs", &at]);
        Self(at)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", &self.0]).status();
    }
}

#[test]
fn neither_does_a_full_file_system_in_memory() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new("full-tmpfs");
    let whole = lab.whole();
    let tmpfs = Tmpfs::new(&lab);
    fills_up(&lab, Path::new(&tmpfs.0), &whole);
}

#[test]
fn what_is_complete_may_be_read_only() {
    if !can_mount() {
        return;
    }
    let lab = Lab::new("read-only");
    let whole = lab.whole();
    let tmpfs = Tmpfs::new(&lab);
    let shown = text(&lab.run(&tmpfs.0, &[]));
    run("mount", &["-o", "remount,ro", &tmpfs.0]);
    assert_eq!(text(&lab.run(&tmpfs.0, &[])), shown);
    same_as_whole(&tmpfs.0, &whole);
    let refused = lab.run(&format!("{}/new", tmpfs.0), &[]);
    assert!(refused.stdout.is_empty(), "nothing is run that cannot be kept");
    assert_eq!(failure(&refused).0, 6);
}

/// A process that may not write long files cannot save some runs, neither there nor elsewhere.
/// Needs no privilege.
#[test]
fn where_nothing_can_be_kept_what_was_kept_stays() {
    if !ready("prlimit") {
        return;
    }
    let lab = Lab::new("limit");
    let whole = lab.whole();
    let mut sizes: Vec<usize> = runs_of(&whole).values().map(Vec::len).collect();
    sizes.sort_unstable();
    let limit = sizes[RUNS / 2 - 1] as u64;
    assert!(limit > EXPERIMENT.len() as u64 && limit < sizes[RUNS - 1] as u64, "{sizes:?}");
    let dir = lab.scratch.join("out");
    // While the signal is ignored, the write fails with an error.
    let script = format!("trap '' XFSZ; exec prlimit --fsize={limit} -- \"$0\" \"$@\"");
    let mut limited = Command::new("sh");
    limited.args(["-c", &script, env!("CARGO_BIN_EXE_seekless")]).args(lab.args(&dir, &[]));
    let output = limited.env("TMPDIR", lab.scratch.path()).output().unwrap();
    assert!(!output.stdout.is_empty(), "what is over is shown");
    let (code, why) = failure(&output);
    assert_eq!(code, 6);
    assert!(
        why.contains("could not be saved, here or elsewhere") && why.contains("File too large"),
        "{why}"
    );
    let kept = runs_of(&dir);
    assert!(!kept.is_empty() && kept.len() < RUNS);
    let before = inodes(&dir);
    text(&lab.run(&dir, &[]));
    let after = inodes(&dir);
    assert!(before.iter().all(|(name, inode)| after[name] == *inode));
    same_as_whole(&dir, &whole);
}

#[test]
fn what_found_no_room_can_be_brought_back() {
    let lab = Lab::new("rescue");
    let (whole, dir) = (lab.whole(), lab.scratch.join("out"));
    // A directory takes the name of the last run's temporary file.
    let last = runs_of(&whole).into_keys().find(|name| name.contains("many+s+async+orlov"));
    let last = last.unwrap();
    let taken = Path::new(&dir).join(format!(".{last}.part"));
    fs::create_dir_all(taken.join("x")).unwrap();
    let (_, why) = failure(&lab.run(&dir, &[]));
    assert!(why.contains("Is a directory"), "sweeping takes no directory: {why}");
    fs::remove_dir_all(&taken).unwrap();
    let blocker = std::thread::scope(|scope| {
        // The name is taken only after the runs have begun.
        let run = scope.spawn(|| lab.run(&dir, &["-j", "1"]));
        while !Path::new(&dir).join("experiment.toml").exists() {
            std::thread::yield_now();
        }
        fs::create_dir_all(taken.join("x")).unwrap();
        run.join().unwrap()
    });
    let (code, why) = failure(&blocker);
    assert!(code == 6 && why.contains("1 of 8 runs shown here are not in"), "{why}");
    let rescued = lab.rescued();
    assert!(why.contains(rescued.to_str().unwrap()));
    assert_eq!(runs_of(&rescued).into_keys().collect::<Vec<_>>(), std::slice::from_ref(&last));
    fs::remove_dir_all(&taken).unwrap();
    fs::rename(rescued.join(&last), Path::new(&dir).join(&last)).unwrap();
    let before = inodes(&dir);
    text(&lab.run(&dir, &[]));
    assert_eq!(inodes(&dir), before, "nothing is run again");
    same_as_whole(&dir, &whole);
}

#[test]
fn what_is_killed_goes_on_where_it_was() {
    let lab = Lab::new("killed");
    let (whole, dir) = (lab.whole(), lab.scratch.join("out"));
    let mut command = command(&lab.args(&dir, &["-j", "1"])[..]);
    let mut running = command.stdout(Stdio::null()).spawn().unwrap();
    while !Path::new(&dir).exists() || runs_of(&dir).is_empty() {
        assert!(running.try_wait().unwrap().is_none(), "it was over too soon");
        std::thread::yield_now();
    }
    running.kill().unwrap();
    running.wait().unwrap();
    let before = inodes(&dir);
    assert!(before.len() < RUNS, "all were over");
    fs::write(Path::new(&dir).join(".run-tiny-x.json.part"), "{\"half\":").unwrap();
    text(&lab.run(&dir, &[]));
    let after = inodes(&dir);
    assert!(before.iter().all(|(name, inode)| after[name] == *inode));
    same_as_whole(&dir, &whole);
}

#[test]
fn several_may_fill_a_directory_at_once() {
    let lab = Lab::new("at-once");
    let (whole, dir) = (lab.whole(), lab.scratch.join("out"));
    for _ in 0..3 {
        let shards = [&["--shard", "1/2"][..], &["--shard", "2/2"], &[]];
        let running =
            shards.map(|shard| command(&lab.args(&dir, shard)).stdout(Stdio::null()).spawn());
        for child in running {
            assert!(child.unwrap().wait().unwrap().success());
        }
        same_as_whole(&dir, &whole);
        fs::remove_dir_all(&dir).unwrap();
    }
}

#[test]
fn repetitions_are_kept_apart() {
    let lab = Lab::new("repetitions");
    let (whole, dir, part) = (lab.whole(), lab.scratch.join("out"), lab.scratch.join("part"));
    text(&lab.run(&dir, &[]));
    let before = inodes(&dir);
    let output = lab.run(&dir, &["--repetitions", "3", "--json"]);
    let cells: serde_json::Value = serde_json::from_str(&text(&output)).unwrap();
    let after = inodes(&dir);
    assert_eq!(after.len(), 3 * RUNS);
    assert!(before.iter().all(|(name, inode)| after[name] == *inode), "the first is there");
    let name = |cell: &serde_json::Value| format!("{} {}", cell["workload"], cell["discipline"]);
    let cells = cells["cells"].as_array().unwrap();
    let many = cells.iter().find(|cell| name(cell) == "\"many\" \"normal\"").unwrap();
    for side in ["old", "new"] {
        let side = &many[side];
        assert_eq!((&side["seeds"], &side["runs"]), (&1.into(), &3.into()));
        let [low, mean, high] = [&side["range_s"][0], &side["seconds"], &side["range_s"][1]]
            .map(|seconds| seconds.as_f64().unwrap());
        assert!(low < mean && mean < high, "{low} {mean} {high}");
    }
    // Some of the runs are in another directory, and are merged with these.
    text(&lab.run(&part, &["--repetitions", "2"]));
    let all = lab.scratch.join("all");
    text(&seekless(&["lab", "merge", &dir, &part, "-o", &all]));
    same_as_whole(&all, Path::new(&dir));
    for (name, bytes) in runs_of(&whole) {
        assert!(runs_of(&all)[&name] == bytes, "{name}");
    }
    let csv = fs::read_to_string(Path::new(&all).join("runs.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 3 * RUNS * 2, "a line for each run and phase");
}

#[test]
fn results_of_others_are_not_mixed_in() {
    let lab = Lab::new("mixed");
    let (whole, dir) = (lab.whole(), lab.scratch.join("out"));
    fs::create_dir(&dir).unwrap();
    let (name, bytes) = runs_of(&whole).pop_first().unwrap();
    let version = format!("\"version\": \"{}\"", seekless_lab::run::VERSION);
    let other = String::from_utf8(bytes).unwrap().replace(&version, "\"version\": \"0.0.0\"");
    fs::write(Path::new(&dir).join(&name), &other).unwrap();
    let merged = seekless(&["lab", "merge", whole.to_str().unwrap(), "-o", &dir]);
    let (code, why) = failure(&merged);
    assert!(code == 4 && why.contains("different versions of seekless"), "{why}");
    assert_eq!(runs_of(&dir).into_values().collect::<Vec<_>>(), [other.into_bytes()]);
}

/// Compares both files, read by independent readers; prints the numbers of rows and columns.
const PYARROW: &str = r#"
import csv, sys
import pyarrow as pa, pyarrow.parquet as pq
table = pq.read_table(sys.argv[1])
with open(sys.argv[2], newline="", encoding="utf-8") as file:
    lines = list(csv.reader(file))
names, rows = lines[0], lines[1:]
assert table.column_names == names, (table.column_names, names)
real, text = {"seconds"}, {"experiment", "version", "digest", "workload", "system",
                           "discipline", "policy", "phase"}
for name in names:
    kind = pa.float64() if name in real else pa.string() if name in text else pa.uint64()
    field = table.schema.field(name)
    assert field.type == kind and not field.nullable, field
    read = float if name in real else str if name in text else int
    assert table[name].to_pylist() == [read(row[names.index(name)]) for row in rows], name
print(table.num_rows, table.num_columns)
"#;

#[test]
fn pyarrow_reads_what_the_csv_says() {
    if !judges::python::ready("pyarrow") {
        return;
    }
    let lab = Lab::new("pyarrow");
    let dir = lab.scratch.join("out");
    text(&lab.run(&dir, &["--seeds", "2", "--repetitions", "2"]));
    let [parquet, csv] = ["runs.parquet", "runs.csv"].map(|name| format!("{dir}/{name}"));
    let said = judges::python::run(PYARROW, &[&parquet, &csv]);
    assert_eq!(said, format!("{} 23\n", 4 * RUNS * 2));
}
