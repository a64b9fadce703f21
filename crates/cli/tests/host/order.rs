//! The order of fetches in a recording, and the gain for the program of a layout by that order. The
//! test's own observer traces the kernel's requests to the device.

use crate::disk::Served;
use crate::judges::{Scratch, command, text};
use crate::record::{events, wait_until};
use crate::{Mounted, can_trace, capable, machine, mke2fs, run, skip};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Reads files of all directories in shuffled order, lists some directories, and touches scattered
/// pages of a mapping.
const PROGRAM: &str = "
import mmap, os, random, sys
os.chdir(sys.argv[1])
rng = random.Random(5)
names = [f'd{n % 20}/s{n % 7}/f{n}' for n in range(700)]
rng.shuffle(names)
mapped = open('mapped', 'rb')
m = mmap.mmap(mapped.fileno(), 0, prot=mmap.PROT_READ)
for n, name in enumerate(names[:300]):
    with open(name, 'rb') as f: f.read()
    if n % 9 == 0: os.listdir(os.path.dirname(name))
    if n % 5 == 0: m[rng.randrange(len(m))]
";

/// Bytes of a block of the image: mke2fs' choice for so small an image. The kernel then reads
/// directory blocks ahead on the device.
const BLOCK: u64 = 1024;

/// Command line of the program; only its data are on the image.
fn program(dir: &str) -> Vec<String> {
    ["python3", "-S", "-E", "-B", "-c", PROGRAM, dir].map(String::from).to_vec()
}

fn make_tree(dir: &Path) {
    for n in 0..700usize {
        let sub = dir.join(format!("d{}/s{}", n % 20, n % 7));
        fs::create_dir_all(&sub).unwrap();
        let contents = vec![n as u8; 300 + n * 193 % 40_000];
        fs::write(sub.join(format!("f{n}")), contents).unwrap();
    }
    // Long names, so that directories have several blocks.
    for n in 0..60 {
        let name = format!("d3/s3/{n}{}", "x".repeat(200));
        fs::create_dir_all(dir.join("d3/s3")).unwrap();
        fs::write(dir.join(name), b"").unwrap();
    }
    fs::write(dir.join("mapped"), vec![9; 12 << 20]).unwrap();
}

/// Traces requests to a device, in a tracing instance of its own.
struct Observer {
    tracefs: PathBuf,
    instance: PathBuf,
}

impl Observer {
    fn new(scratch: &Scratch, device: u64) -> Option<Self> {
        let tracefs = scratch.path().join("tracefs");
        fs::create_dir_all(&tracefs).unwrap();
        run("mount", &["-t", "tracefs", "none", tracefs.to_str()?])?;
        let instance = tracefs.join(format!("instances/observer-{}", std::process::id()));
        fs::create_dir(&instance).unwrap();
        let observer = Self { tracefs, instance };
        let (major, minor) = (device >> 8, device & 0xFF);
        observer.set("buffer_size_kb", "8192");
        observer.set(
            "events/block/block_rq_issue/filter",
            &format!("dev == {}", (major << 20) | minor),
        );
        observer.set("events/block/block_rq_issue/enable", "1");
        Some(observer)
    }

    fn set(&self, file: &str, value: &str) {
        fs::write(self.instance.join(file), value).unwrap();
    }

    /// The program's reads during `act`: first sector and number of sectors of each.
    fn reads(&self, act: impl FnOnce()) -> Vec<(u64, u64)> {
        self.set("trace", "");
        self.set("tracing_on", "1");
        act();
        self.set("tracing_on", "0");
        let text = fs::read_to_string(self.instance.join("trace")).unwrap();
        // The recorder reads directories itself at the end; its reads are left out.
        let lines = text.lines().filter(|line| line.trim_start().starts_with("python3-"));
        lines
            .filter_map(|line| line.split_once("block_rq_issue: "))
            .filter_map(|(_, what)| {
                // 7,0 RA 4096 () 340 + 8 be,0,4 [python3]
                let words: Vec<&str> = what.split_whitespace().collect();
                let plus = words.iter().position(|word| *word == "+")?;
                let kind = words.get(1)?;
                let number = |at: usize| words.get(at)?.parse::<u64>().ok();
                kind.contains('R').then_some((number(plus - 1)?, number(plus + 1)?))
            })
            .collect()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.set("tracing_on", "0");
        self.set("events/enable", "0");
        let _ = fs::remove_dir(&self.instance);
        run("umount", &[self.tracefs.to_str().unwrap_or_default()]);
    }
}

fn seeks(reads: &[(u64, u64)]) -> usize {
    reads.windows(2).filter(|pair| pair[0].0 + pair[0].1 != pair[1].0).count()
}

struct Bench {
    scratch: Scratch,
    dir: PathBuf,
}

impl Bench {
    fn new(name: &str) -> Option<Self> {
        if !(capable() && can_trace()) {
            return None;
        }
        let scratch = Scratch::on_disk(name);
        let tree = scratch.path().join("tree");
        make_tree(&tree);
        mke2fs(&tree, &scratch.path().join("image"), "64M");
        let dir = scratch.path().join("mnt");
        Some(Self { scratch, dir })
    }

    fn mount(&self, image: &str) -> Option<(Mounted, u64)> {
        let mounted = Mounted::new(&self.scratch.path().join(image), &self.dir);
        if mounted.is_none() {
            skip("no loop device can be mounted here");
        }
        let device = fs::metadata(&self.dir).unwrap().dev();
        Some((mounted?, device))
    }

    /// Records the program on the mounted image.
    fn record(&self, trace: &str) -> Vec<Value> {
        let trace = self.scratch.join(trace);
        let to = self.dir.to_str().unwrap();
        let args = ["record", "--mount", to, "--source", "tracefs", "-o", &trace, "--"];
        text(&command(&args).args(program(to)).output().unwrap());
        events(Path::new(&trace))
    }

    /// Seeks of the program itself with cold caches, the fewest of three runs.
    fn seeks(&self, image: &str) -> Option<usize> {
        let (_mounted, device) = self.mount(image)?;
        let observer = Observer::new(&self.scratch, device)?;
        let command = program(self.dir.to_str()?);
        let args: Vec<&str> = command[1..].iter().map(String::as_str).collect();
        let once = || {
            fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
            seeks(&observer.reads(|| drop(run(&command[0], &args).expect("runs"))))
        };
        (0..3).map(|_| once()).min()
    }

    fn optimize(&self, image: &str, trace: &str, to: &str) {
        let [image, trace, to] = [image, trace, to].map(|name| self.scratch.join(name));
        text(&command(&["optimize", &image, "--trace", &trace, "-o", &to]).output().unwrap());
    }
}

/// Fetches from the disk, in order.
fn fetched(events: &[Value]) -> Vec<(String, u64, u64)> {
    let of = |event: &Value| {
        let path = event["path"].as_str().unwrap().to_string();
        (path, event["offset"].as_u64().unwrap_or(0), event["length"].as_u64().unwrap())
    };
    events.iter().filter(|event| event["fetched"] == true).map(of).collect()
}

/// Length of the longest common subsequence of two lists.
fn in_order<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    let mut row = vec![0usize; b.len() + 1];
    for one in a {
        let mut diagonal = 0;
        for (at, other) in b.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = if one == other { diagonal + 1 } else { above.max(row[at]) };
            diagonal = above;
        }
    }
    row[b.len()]
}

/// `queue/read_ahead_kb` of a device.
fn read_ahead_of(device: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}/queue/read_ahead_kb", device >> 8, device & 0xFF))
}

#[test]
fn the_order_does_not_depend_on_the_device_or_what_it_reads_ahead() {
    let _machine = machine();
    let Some(bench) = Bench::new("order-read-ahead") else { return };
    let mut traces = Vec::new();
    for (n, kib) in ["128", "2560", "2560"].into_iter().enumerate() {
        let Some((_mounted, device)) = bench.mount("image") else { return };
        fs::write(read_ahead_of(device), kib).unwrap();
        traces.push(bench.record(&format!("trace{n}")));
        assert_eq!(fs::read_to_string(read_ahead_of(device)).unwrap().trim(), kib);
    }
    {
        // A disk that takes milliseconds for reads that its backing file answers at once.
        let served = Served::new(&bench.scratch, &["--model", "raptor-74", "--realtime"]);
        let Some(_mounted) = Mounted::new(&served.dir.join("disk"), &bench.dir) else { return };
        traces.push(bench.record("trace-of-disk"));
    }
    let header: Value = serde_json::from_str(
        fs::read_to_string(bench.scratch.path().join("trace1")).unwrap().lines().next().unwrap(),
    )
    .unwrap();
    assert_eq!(header["read_ahead_kb"], 128, "{header}");
    assert_eq!((&header["pages"], &header["block_size"]), (&"fetched".into(), &BLOCK.into()));
    let lists: Vec<_> = traces.iter().map(|trace| fetched(trace)).collect();
    assert!(lists[0].len() > 300, "{}", lists[0].len());
    for other in &lists[1..] {
        let same = in_order(&lists[0], other);
        assert!(same * 100 >= lists[0].len() * 98, "{same} of {}", lists[0].len());
    }
    let faults = |trace: &[Value]| -> Vec<(String, u64)> {
        let faults = trace.iter().filter(|event| event["op"] == "fault");
        faults
            .map(|event| (event["path"].to_string(), event["offset"].as_u64().unwrap_or(0)))
            .collect()
    };
    let (one, two) = (faults(&traces[0]), faults(&traces[2]));
    let same = in_order(&one, &two);
    assert!(one.len() >= 20 && same * 100 >= one.len() * 95, "{same} of {}", one.len());
}

/// Blocks of each directory, according to debugfs.
fn directory_blocks(image: &Path, tree: &Path) -> Vec<(String, Vec<u64>)> {
    let mut found = Vec::new();
    let mut todo = vec![PathBuf::from("/")];
    while let Some(dir) = todo.pop() {
        let name = dir.to_str().unwrap().to_string();
        let blocks =
            run("debugfs", &["-R", &format!("blocks {name}"), image.to_str().unwrap()]).unwrap();
        let blocks = blocks.split_whitespace().map(|block| block.parse().unwrap()).collect();
        found.push((name, blocks));
        for entry in fs::read_dir(tree.join(dir.strip_prefix("/").unwrap())).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                todo.push(dir.join(entry.file_name()));
            }
        }
    }
    found
}

#[test]
fn every_directory_block_that_is_fetched_is_in_the_trace() {
    let _machine = machine();
    let Some(bench) = Bench::new("order-directories") else { return };
    let Some((_mounted, device)) = bench.mount("image") else { return };
    let Some(observer) = Observer::new(&bench.scratch, device) else { return };
    let mut recorded = Vec::new();
    let reads = observer.reads(|| recorded = bench.record("trace"));
    let seen: BTreeSet<u64> = reads
        .iter()
        .flat_map(|&(sector, sectors)| sector * 512 / BLOCK..(sector + sectors) * 512 / BLOCK)
        .collect();
    let in_trace: BTreeSet<(String, u64)> = fetched(&recorded)
        .into_iter()
        .flat_map(|(path, offset, length)| {
            (offset / BLOCK..(offset + length) / BLOCK).map(move |block| (path.clone(), block))
        })
        .collect();
    let (image, tree) = (bench.scratch.path().join("image"), bench.scratch.path().join("tree"));
    let mut fetched = 0;
    for (name, blocks) in directory_blocks(&image, &tree) {
        for (lbn, block) in (0..).zip(blocks) {
            if seen.contains(&block) {
                fetched += 1;
                assert!(in_trace.contains(&(name.clone(), lbn)), "block {lbn} of {name}");
            }
        }
    }
    assert!(fetched > 100, "{fetched}");
}

#[test]
fn a_program_seeks_a_tenth_as_often_and_no_more_when_it_is_recorded_again() {
    let _machine = machine();
    let Some(bench) = Bench::new("order-again") else { return };
    for (from, trace, to) in [("image", "first", "laid"), ("laid", "second", "again")] {
        let Some((mounted, _)) = bench.mount(from) else { return };
        bench.record(trace);
        drop(mounted);
        bench.optimize(from, trace, to);
    }
    let Some(built) = bench.seeks("image") else { return };
    let (laid, again) = (bench.seeks("laid").unwrap(), bench.seeks("again").unwrap());
    println!("seeks: {built} as built, {laid} laid out, {again} recorded again");
    assert!(built > 200, "{built}");
    assert!(laid <= built / 10 + 15, "{laid} of {built}");
    assert!(again <= laid + 5, "{again}, {laid} before");
}

#[test]
fn what_the_device_read_ahead_is_put_back_even_by_the_killed() {
    let _machine = machine();
    let Some(bench) = Bench::new("order-killed") else { return };
    let Some((_mounted, device)) = bench.mount("image") else { return };
    let file = read_ahead_of(device);
    let value = || fs::read_to_string(&file).unwrap().trim().to_string();
    for (signal, wanted) in [("-KILL", "640"), ("-TERM", "640")] {
        fs::write(&file, wanted).unwrap();
        let ready = bench.scratch.path().join("ready");
        let script = format!("echo $$ > {}; exec sleep 600", ready.display());
        let mut child = command(&["record", "--read-ahead", "64K", "--mount"])
            .arg(&bench.dir)
            .args(["-o".as_ref(), bench.scratch.path().join("trace").as_os_str()])
            .args(["--", "sh", "-c", &script])
            .spawn()
            .unwrap();
        wait_until("ready", || ready.exists());
        assert_eq!(value(), "64");
        run("kill", &[signal, &child.id().to_string()]).unwrap();
        child.wait().unwrap();
        wait_until("put back", || value() == wanted);
        if signal == "-KILL" {
            // Only the recorder was killed; its program still runs.
            let program = fs::read_to_string(&ready).unwrap();
            run("kill", &[program.trim()]).unwrap();
        }
        fs::remove_file(&ready).unwrap();
    }
    // The next recording removes the remains of the killed one.
    bench.record("next");
}
