//! A slice of the experiments, small enough to run every time.

use seekless_lab::builtin;
use seekless_lab::cells::{agreement, cells};
use seekless_lab::experiment::Experiment;
use seekless_lab::plan::{Wanted, runs};
use seekless_lab::pool::perform_all;
use seekless_lab::run::{Run, RunId, digest, perform};

/// The experiment with a tree and caches a tenth as large.
fn small() -> (String, Experiment) {
    let text = builtin::text("dirpref")
        .unwrap()
        .replace("directories = 6596, files = 13868", "directories = 660, files = 1400")
        .replace("size = \"45M\"", "size = \"4500K\"")
        .replace("size = \"64M\"", "size = \"6400K\"");
    let experiment = Experiment::parse(&text, "small.toml").unwrap();
    (digest(&text, &experiment), experiment)
}

fn measure(jobs: usize, only: &[&str]) -> Vec<Run> {
    let (digest, experiment) = small();
    let only = only.iter().map(ToString::to_string).collect();
    let ids = runs(&experiment, &Wanted { only, ..Wanted::default() }).unwrap();
    let mut found = Vec::new();
    perform_all(&experiment, &digest, &ids, jobs, |run| found.push(run)).unwrap();
    found.sort_by_key(|run| run.id.to_string());
    found
}

#[test]
fn the_new_policy_wins_and_says_by_what() {
    let runs = measure(2, &["second/async", "second/softdep"]);
    let (_, experiment) = small();
    let cells = cells(&experiment, &runs);
    assert_eq!(cells.len(), 4, "two disciplines, two phases");
    for phase in runs.iter().flat_map(|run| &run.phases) {
        let disk = phase.counts.disk;
        let counted = [disk.reads, disk.sync_writes, disk.async_writes];
        assert_eq!(phase.plot.totals(), counted, "every request is in the picture");
        assert!(phase.plot.bins().len() > 10);
    }
    for cell in &cells {
        let speedup = cell.speedup().unwrap();
        assert!(speedup > 1.0, "{}: {speedup}", cell.name());
        let [old, new] = cell.sides.as_slice() else { panic!("two policies") };
        assert!(new.counts.disk.seeks < old.counts.disk.seeks, "{}", cell.name());
        assert!(new.counts.disk.reads <= old.counts.disk.reads);
        assert_eq!(old.counts.disk.sync_writes, 0, "nobody waits for writes");
        assert!(old.counts.cpu_ns > 0 && old.counts.disk.busy_ns > 0);
        assert!(cell.json()["published_speedup"].as_f64().unwrap() > 1.0);
    }
    let found = agreement(&cells).unwrap();
    assert_eq!((found.cells, found.new_is_faster), (4, 4));
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let [once, again] = [1, 2].map(|jobs| measure(jobs, &["first/softdep"]));
    assert_eq!(once, again);
    let (digest, experiment) = small();
    let mut other = once[0].id.clone();
    other.seed = 7;
    let other = perform(&experiment, &digest, &other, None).unwrap();
    // Who waits for the drive goes on in steps of its revolutions: the time may well
    // be the same.
    assert_ne!(other.phases[0].counts.disk, once[0].phases[0].counts.disk);
}

/// What the processor did says what tree it was: each call and each byte costs.
#[test]
fn repetitions_have_the_same_tree_and_other_chance() {
    let (digest, experiment) = small();
    let only = ["first/normal", "first/softdep"].map(String::from).to_vec();
    let wanted = Wanted { only, repetitions: Some(3), ..Wanted::default() };
    let ids = runs(&experiment, &wanted).unwrap();
    let phases = |id: &RunId| perform(&experiment, &digest, id, None).unwrap().phases;
    for zero in ids.iter().filter(|id| id.repetition == 0) {
        let [once, twice, thrice] =
            [0, 1, 2].map(|repetition| phases(&RunId { repetition, ..zero.clone() }));
        for at in 0..2 {
            let [a, b, c] = [&once, &twice, &thrice].map(|phases| &phases[at]);
            let cpu = a.counts.cpu_ns;
            assert_eq!((b.counts.cpu_ns, c.counts.cpu_ns), (cpu, cpu), "{zero}");
            let [a, b, c] = [a, b, c].map(|phase| phase.seconds);
            assert!(a != b && b != c, "{zero}: {a} {b} {c}");
        }
        assert_eq!(phases(&RunId { repetition: 1, ..zero.clone() }), twice, "always the same");
        let other = phases(&RunId { seed: 2, ..zero.clone() });
        assert_ne!(other[0].counts.cpu_ns, once[0].counts.cpu_ns, "another seed, another tree");
    }
    let more = Wanted { repetitions: Some(2), ..Wanted::default() };
    let text = format!("repetitions = 2\n{}", builtin::text("dirpref").unwrap());
    let file = Experiment::parse(&text, "twice.toml").unwrap();
    assert_eq!(runs(&file, &Wanted::default()).unwrap(), runs(&experiment, &more).unwrap());
    assert_eq!(experiment.repetitions, 1);
}

/// The file of an experiment up to its claims, which name systems of its sweeps.
fn without_claims(name: &str) -> String {
    let (text, _) = builtin::text(name).unwrap().split_once("\n[[claim]]").unwrap();
    text.into()
}

/// All runs of an experiment's file.
fn all_of(text: &str, only: &[&str]) -> (Experiment, Vec<Run>) {
    let experiment = Experiment::parse(text, "test.toml").unwrap();
    let digest = digest(text, &experiment);
    let only = only.iter().map(ToString::to_string).collect();
    let ids = runs(&experiment, &Wanted { only, ..Wanted::default() }).unwrap();
    let mut found = Vec::new();
    perform_all(&experiment, &digest, &ids, 2, |run| found.push(run)).unwrap();
    (experiment, found)
}

#[test]
fn the_benchmarks_of_soft_updates_go_as_published() {
    let text = builtin::text("softdep").unwrap().replace("rounds = 1000", "rounds = 2");
    let (_, found) = all_of(&text, &["andrew", "torture"]);
    let of = |workload: &str, discipline: &str| {
        let is = |run: &&Run| run.id.workload == workload && run.id.discipline == discipline;
        found.iter().find(is).unwrap().phases.clone()
    };
    let (normal, soft) = (of("andrew", "normal"), of("andrew", "softdep"));
    for phases in [&normal, &soft] {
        let sum: f64 = phases[..5].iter().map(|phase| phase.seconds).sum();
        assert_eq!((phases.len(), &*phases[5].phase), (6, "all"));
        assert!((sum - phases[5].seconds).abs() < 1e-6, "{sum} {}", phases[5].seconds);
        let writes = |phase: &seekless_lab::run::Phase| {
            phase.counts.disk.sync_writes + phase.counts.disk.async_writes
        };
        assert_eq!(phases[..5].iter().map(writes).sum::<u64>(), writes(&phases[5]));
    }
    // Directories and files are made faster, what only reads is as fast.
    assert!(soft[0].seconds < normal[0].seconds && soft[1].seconds < normal[1].seconds);
    assert!((soft[2].seconds - normal[2].seconds).abs() < 0.01);
    // A program of 60 ms for each of 70 files.
    assert!((4.2..4.5).contains(&soft[2].seconds), "{}", soft[2].seconds);
    for workload in ["andrew", "torture"] {
        let (normal, soft) = (of(workload, "normal"), of(workload, "softdep"));
        let (normal, soft) = (normal.last().unwrap(), soft.last().unwrap());
        assert_eq!(soft.counts.disk.sync_writes, 0);
        let writes = normal.counts.disk.sync_writes + normal.counts.disk.async_writes;
        assert!(soft.counts.disk.async_writes * 100 < writes * 75, "{workload}");
        assert!(soft.seconds < normal.seconds, "{workload}");
    }
}

#[test]
fn a_limit_on_directories_in_a_row_keeps_files_with_theirs() {
    let text = without_claims("maxcontigdirs")
        .replace("[1, 2, 3]", "[1]")
        .replace("[\"4K\", \"16K\", \"64K\", \"256K\"]", "[\"4K\", \"256K\"]")
        .replace("[4, 16, 64, 256]", "[4, 64]");
    let (experiment, found) = all_of(&text, &["small", "shuffled"]);
    assert_eq!(experiment.systems.len(), 4);
    let cells = cells(&experiment, &found);
    let grids = seekless_lab::grids::grids(&experiment, &cells);
    assert_eq!(grids.len(), 8, "two workloads of four phases");
    let seconds = |name: &str| {
        let grid = grids.iter().find(|grid| grid.name == name).unwrap();
        assert_eq!((&*grid.rows.0, &*grid.columns.0), ("avgfilesize", "avgfpdir"));
        let at = |row: usize, column: usize| grid.seconds[row][column].unwrap();
        (at(0, 0), at(1, 1))
    };
    // 4K x 4 is no limit, 256K x 64 lets one directory into a group.
    // Each of the two keys counts.
    let mkdir = &grids.iter().find(|grid| grid.name == "small/mkdir/async").unwrap().seconds;
    assert!(mkdir[0][0] < mkdir[0][1] && mkdir[0][0] < mkdir[1][0], "{mkdir:?}");
    let (without, with) = seconds("shuffled/read/async");
    assert!(with * 3.0 < without, "{with} {without}");
    let (without, with) = seconds("small/rm/async");
    assert!(without * 3.0 < with, "{with} {without}");
}

/// Counts do not hang on the drive: they are the engine's.
#[test]
fn soft_updates_spare_the_writes_they_are_known_for() {
    let text = builtin::text("softdep").unwrap();
    let experiment = builtin::experiment("softdep").unwrap();
    let digest = digest(text, &experiment);
    let wanted = Wanted { only: vec!["small-tree".into(), "makedev".into()], ..Wanted::default() };
    let mut found = Vec::new();
    for id in runs(&experiment, &wanted).unwrap() {
        found.push(perform(&experiment, &digest, &id, None).unwrap());
    }
    let writes = |workload: &str, discipline: &str, phase: usize| {
        let is = |run: &&Run| run.id.workload == workload && run.id.discipline == discipline;
        let disk = found.iter().find(is).unwrap().phases[phase].counts.disk;
        (disk.sync_writes, disk.async_writes)
    };
    let (sync, _) = writes("small-tree", "normal", 0);
    assert!((445..=601).contains(&sync), "published 523, measured {sync}");
    let (sync, _) = writes("small-tree", "normal", 1);
    assert_eq!(sync, 258, "as published: a parent's number of links is not waited for");
    for (workload, phase) in [("small-tree", 0), ("small-tree", 1), ("makedev", 0)] {
        let (normal_sync, normal_async) = writes(workload, "normal", phase);
        let (sync, delayed) = writes(workload, "softdep", phase);
        assert_eq!(sync, 0, "nobody waits for a write");
        assert!(delayed * 3 < normal_sync + normal_async, "{workload} {phase}: {delayed}");
    }
}

/// The experiment with directories of inodes, a twenty-fifth as large.
fn small_reservation() -> (String, Experiment) {
    let text = builtin::text("reservation")
        .unwrap()
        .replace("files = 500000", "files = 20000")
        .replace("directories = 9891, files = 138460", "directories = 397, files = 5544")
        .replace("size = \"16M\"", "size = \"640K\"")
        .replace("size = \"40G\"", "size = \"2G\"")
        .replace("journal = \"128M\"", "journal = \"16M\"");
    let experiment = Experiment::parse(&text, "small.toml").unwrap();
    (digest(&text, &experiment), experiment)
}

/// Where the tables of inodes do not fit in memory, their order decides, in each mode of the
/// journal.
#[test]
fn inodes_in_order_and_reserved_ones_are_removed_faster() {
    let (digest, experiment) = small_reservation();
    let only = ["hash-order/small-memory", "in-turn/small-memory/ext2-orlov"];
    let reserved = "in-turn/small-memory/ext2-orlov+dir-reserve=16";
    let only = only.into_iter().chain([reserved]).map(String::from).collect();
    let ids = runs(&experiment, &Wanted { only, ..Wanted::default() }).unwrap();
    assert_eq!(ids.len(), 9, "two workloads, three modes, two policies of one");
    let mut found = Vec::new();
    perform_all(&experiment, &digest, &ids, 2, |run| found.push(run)).unwrap();
    let cells = cells(&experiment, &found);
    for mode in ["journal=writeback", "journal=ordered", "journal=data"] {
        let of = |phase: &str| {
            let mut cells = cells.iter();
            cells.find(|cell| cell.discipline == mode && cell.phase == phase).unwrap()
        };
        let seconds = |phase: &str| of(phase).sides[0].seconds;
        let copied = seconds("cp-first") / seconds("cp-second");
        let removed = seconds("rm-first") / seconds("rm-copy");
        // The drive's own buffer holds much of so small a table.
        assert!(copied >= 1.8, "{mode}: {copied}");
        assert!(removed >= 5.0, "{mode}: {removed}");
        let reserved = of("rm").speedup().unwrap();
        assert!(reserved >= 1.6, "{mode}: {reserved}");
        let writes = of("rm").sides.iter().map(|side| side.counts.disk.written_bytes);
        let [plain, reserved] = writes.collect::<Vec<_>>()[..] else { panic!("two sides") };
        assert!(reserved * 2 < plain, "{mode}: {reserved} of {plain} bytes");
    }
}

/// Names, small files and their removal, on each kind of FAT.
const FAT: &str = "\
name = \"fat\"
summary = \"FAT by kind and policy\"
policies = [\"first-fit\", \"next-fit\", \"random-near\", \"random-next\", \"random\", \"next-near\"]
disciplines = [\"normal\", \"async\", \"sync\", \"softdep\"]
seeds = [1]

[[workload]]
name = \"tree\"
kind = \"tree-then-files\"
tree = { kind = \"source\", directories = 12, files = 300, bytes = 1200000 }

[[system]]
name = \"drive\"
drive = \"sata-7200\"
queue = 256
format = { kind = \"KIND\", size = \"SIZE\", cluster = \"CLUSTER\", fats = FATS }
cache = { size = \"1M\", cluster = \"64K\", ages = [10, 15, 30] }
cpu = { change = \"100us\", look = \"20us\", copy = \"100M\", unpack = \"20M\" }
";

fn fat(kind: &str, size: &str, cluster: &str, fats: u32) -> String {
    let text = FAT.replace("KIND", kind).replace("SIZE", size).replace("CLUSTER", cluster);
    text.replace("FATS", &fats.to_string())
}

#[test]
fn every_kind_of_fat_is_run_under_every_policy() {
    let kinds = [("fat12", "30M", "16K", 2), ("fat16", "64M", "4K", 1), ("fat32", "400M", "4K", 2)];
    for (kind, size, cluster, fats) in kinds {
        let text = fat(kind, size, cluster, fats);
        // All policies under one discipline, and all disciplines under one policy.
        let (experiment, found) = all_of(&text, &["normal", "next-fit"]);
        assert_eq!(found.len(), 9, "{kind}");
        let seconds = |discipline: &str, policy: &str, phase: usize| {
            let is = |run: &&Run| (&*run.id.discipline, &*run.id.policy) == (discipline, policy);
            found.iter().find(is).unwrap().phases[phase].seconds
        };
        for run in &found {
            let files = &run.phases[1].counts.disk;
            let made = (&*run.phases[0].phase, files.written_bytes >= 1_200_000);
            assert_eq!(made, ("mkdir", true), "{kind} {}", run.id);
            let waits = files.sync_writes;
            let expected = matches!(&*run.id.discipline, "normal" | "sync");
            assert_eq!(waits > 0, expected, "{kind} {}: {waits}", run.id);
        }
        // Names and files in a row are read in a row.
        let (row, anywhere) = (seconds("normal", "next-fit", 2), seconds("normal", "random", 2));
        assert!(row * 1.5 < anywhere, "{kind}: {row} {anywhere}");
        assert!(seconds("softdep", "next-fit", 1) < seconds("sync", "next-fit", 1), "{kind}");
        assert_eq!(experiment.policies.len(), 6);
    }
}

/// What is left on the disk is a volume without faults.
#[test]
fn a_fat_volume_that_was_run_is_sound() {
    use seekless_lab::machine::{Machine, Setup};
    use seekless_lab::repetition::Chance;
    let experiment = Experiment::parse(&fat("fat32", "400M", "4K", 2), "fat.toml").unwrap();
    let (system, workload) = (&experiment.systems[0], &experiment.workloads[0]);
    for discipline in &experiment.disciplines {
        let chance = Chance::of(1, 0);
        let setup = Setup { policy: "random-near", discipline: discipline.0, chance, workload };
        let mut machine = Machine::new(system, &setup, None).unwrap();
        let copy = machine.make(machine.root(), "left", seekless_fs::operate::NewFile::Regular);
        machine.write(copy.unwrap(), seekless_units::ByteLen::new(100_000)).unwrap();
        workload.perform(&mut machine, 1).unwrap();
        let disks = machine.close().unwrap();
        let found = seekless_fat::check(disks[0].clone()).unwrap();
        assert!(found.findings.is_empty(), "{}: {:?}", discipline.0, found.findings);
    }
}

/// The comparison of file systems with a fifteenth of the files, and dirty buffers in proportion.
fn small_tarcp() -> String {
    builtin::text("tarcp")
        .unwrap()
        .replace(
            "directories = 1700, files = 27000, bytes = 340000000",
            "directories = 120, files = 1800, bytes = 22700000",
        )
        .replace("dirty = 1824", "dirty = 128")
        .replace("dirty = 14592", "dirty = 1024")
        .replace(
            "files = 60000, directories = 100, transactions = 60000",
            "files = 4000, directories = 10, transactions = 4000",
        )
        .replace("size = \"1000M\", cluster", "size = \"280M\", cluster")
}

#[test]
fn file_systems_are_in_the_published_order_where_that_is_far_apart() {
    let (experiment, found) = all_of(&small_tarcp(), &["ffs", "ext2", "msdosfs/normal/next-fit"]);
    let cells = cells(&experiment, &found);
    let seconds = |system: &str, discipline: &str, phase: &str| {
        let is = |cell: &&seekless_lab::cells::Cell| {
            let names = (&*cell.system, &*cell.discipline, &*cell.phase);
            names == (system, discipline, phase) && cell.published.is_some()
        };
        cells.iter().find(is).unwrap().sides.last().unwrap().seconds
    };
    let order = [("ffs1", "async"), ("ffs1", "normal"), ("ext2-1024", "normal")];
    let times = order.map(|(system, discipline)| seconds(system, discipline, "tarcp"));
    assert!(times.is_sorted(), "{times:?}");
    // Names are waited for under async too, inodes are not.
    let (all, some) =
        (seconds("ext2-4096", "normal", "tarcp"), seconds("ext2-4096", "async", "tarcp"));
    assert!(seconds("ffs1", "async", "tarcp") * 1.5 < some && some < all, "{some} {all}");
    assert!(seconds("ffs1", "normal", "tar") < seconds("ext2-1024", "normal", "tar"));
    let orders = seekless_lab::ranking::orders(&experiment, &cells);
    assert_eq!(orders.len(), 4, "two phases, by the first and the last policy");
    let [first, ..] = &orders[..] else { panic!("some") };
    assert_eq!((&*first.phase, first.policy, first.pairs), ("tarcp", "first", 39));
}

#[test]
fn clusters_in_a_row_beat_clusters_by_chance_and_less_with_several_writers() {
    let workloads = ["one-writer", "four-writers", "aged-msdosfs"];
    let only: Vec<String> = workloads
        .iter()
        .flat_map(|name| ["next-fit", "random"].map(|policy| format!("{name}/{policy}")))
        .collect();
    let only: Vec<&str> = only.iter().map(String::as_str).collect();
    let (experiment, found) = all_of(&small_tarcp(), &only);
    assert_eq!(found.len(), 6);
    let cells = cells(&experiment, &found);
    let factor = |workload: &str, phase: &str| {
        let is = |cell: &&seekless_lab::cells::Cell| {
            (&*cell.workload, &*cell.phase) == (workload, phase)
        };
        let cell = cells.iter().find(is).unwrap();
        let [random, next] = cell.sides.as_slice() else { panic!("two policies") };
        assert_eq!((&*random.policy, &*next.policy), ("random", "next-fit"));
        random.seconds / next.seconds
    };
    let (one, four) = (factor("one-writer", "tar"), factor("four-writers", "tar"));
    assert!(one > four && four > 1.2, "{one} {four}");
    assert!(factor("one-writer", "tarcp") > 1.2);
    assert!(factor("aged-msdosfs", "tar") < one, "free clusters do not lie in a row any more");
}

/// The experiment with snapshots, a hundredth as large.
fn small_snapshots() -> String {
    without_claims("snapshots")
        .replace("directories = 6596, files = 13868, categories = 50", TINY_PORTS)
        .replace("\"7928M\"", "\"96M\"")
        .replace("blocks_per_group = 1024", "blocks_per_group = 512")
        .replace("[\"1G\", \"8G\", \"64G\"]", "[\"64M\", \"512M\", \"2G\"]")
}

const TINY_PORTS: &str = "directories = 66, files = 140, categories = 3";

#[test]
fn snapshots_cost_more_the_more_there_are_and_the_larger_the_volume() {
    let (experiment, found) = all_of(&small_snapshots(), &["ide-ufs2", "disk-64M", "disk-2G"]);
    let again = all_of(&small_snapshots(), &["ide-ufs2", "disk-64M", "disk-2G"]).1;
    let in_order = |mut runs: Vec<Run>| {
        runs.sort_by_key(|run| run.id.to_string());
        runs
    };
    let cells = cells(&experiment, &found);
    assert_eq!(in_order(found), in_order(again), "always the same");
    let side = |system: &str, workload: &str, phase: &str| {
        let is = |cell: &&seekless_lab::cells::Cell| {
            (&*cell.system, &*cell.workload, &*cell.phase) == (system, workload, phase)
        };
        &cells.iter().find(is).unwrap().sides[0]
    };
    for system in ["ide-ufs2", "disk-64M", "disk-2G"] {
        for phase in ["untar", "rm"] {
            let [none, one, three] = ["none", "one", "three"].map(|it| side(system, it, phase));
            assert_eq!(none.counts.disk.sync_writes, 0, "{system} {phase}: nothing is copied");
            let [one_s, three_s] = [one, three].map(|side| side.counts.disk.sync_writes);
            assert!(0 < one_s && one_s < three_s, "{system} {phase}: {one_s} {three_s}");
            let seconds = [none, one, three].map(|side| side.seconds);
            assert!(seconds.is_sorted(), "{system} {phase}: {seconds:?}");
        }
        // All changes of the tree before are on the disk when the snapshot is taken.
        let [sync, take] = ["sync", "take"].map(|phase| side(system, "none", phase));
        assert!(sync.counts.disk.async_writes > 0, "{system}");
        assert_eq!(sync.counts.disk.sync_writes, 0, "{system}");
        assert!(take.counts.disk.sync_writes > 12, "{system}: the first blocks are copied");
        let [none, three] = ["none", "three"].map(|it| side(system, it, "take"));
        assert!(none.counts.disk.reads < three.counts.disk.reads, "{system}: older maps are read");
    }
    for phase in ["take", "remove"] {
        let [small, large] = ["disk-64M", "disk-2G"].map(|it| side(it, "none", phase).seconds);
        assert!(small < large, "{phase}: {small} {large}");
    }
}

/// The volume on the disk has neither faults nor snapshots afterwards.
#[test]
fn a_volume_that_had_snapshots_is_sound() {
    use seekless_fs::format::OpenOptions;
    use seekless_lab::machine::{Machine, Setup};
    use seekless_lab::repetition::Chance;
    let experiment = Experiment::parse(&small_snapshots(), "small.toml").unwrap();
    for system in &experiment.systems[..2] {
        let workload = &experiment.workloads[2];
        let (chance, discipline) = (Chance::of(1, 0), experiment.disciplines[0].0);
        let setup = Setup { policy: "orlov", discipline, chance, workload };
        let mut machine = Machine::new(system, &setup, None).unwrap();
        workload.perform(&mut machine, 1).unwrap();
        let disk = machine.close().unwrap().remove(0);
        let found = seekless_ffs::check(disk.clone()).unwrap();
        assert!(found.findings.is_empty(), "{}: {:?}", system.name, found.findings);
        assert!(seekless_ffs::snapshots(disk, OpenOptions::default()).unwrap().is_empty());
    }
}

/// The costs of reserved inodes, in a hundredth of the experiment: in a large area in the order of
/// hashes files lie in many blocks, a directory's inodes lie in as many places as it has areas, and a
/// check reads the tables up to the last window.
#[test]
fn reserved_inodes_cost_what_they_are_known_for() {
    let text = builtin::text("reservation-faults")
        .unwrap()
        .replace("directories = 9891, files = 138460", "directories = 101, files = 1400")
        .replace("=16384", "=4096")
        .replace("size = \"48M\"", "size = \"512K\"")
        .replace("size = \"40G\"", "size = \"2G\"")
        .replace("journal = \"128M\"", "journal = \"16M\"");
    let (experiment, found) =
        all_of(&text, &["one-large-500", "two-mounts", "two-mounts-linked", "checked"]);
    let sorted = |mut runs: Vec<Run>| {
        runs.sort_by_key(|run| run.id.to_string());
        runs
    };
    let checked = found.iter().filter(|run| run.id.workload == "checked").cloned().collect();
    assert_eq!(sorted(checked), sorted(all_of(&text, &["checked"]).1), "always the same");
    let cells = cells(&experiment, &found);
    let reads = |workload: &str, phase: &str, policy: &str| {
        let mut cells = cells.iter();
        let cell = cells.find(|cell| (&*cell.workload, &*cell.phase) == (workload, phase)).unwrap();
        let policy = format!("ext2-orlov{policy}");
        cell.sides.iter().find(|side| side.policy == policy).unwrap().counts.disk.reads
    };
    let [linear, hashed] = ["+dir-reserve=4096", "+dir-reserve-hashed=4096"]
        .map(|policy| reads("one-large-500", "read", policy));
    assert!(linear * 3 < hashed, "{linear} {hashed}");
    let one = reads("two-mounts", "rm", "+dir-reserve-hashed=16");
    let two = reads("two-mounts-linked", "rm", "+dir-reserve-hashed=8");
    let three = reads("two-mounts", "rm", "+dir-reserve-hashed=8");
    assert!(one < two && two < three, "{one} {two} {three}");
    assert_eq!(one, reads("two-mounts", "rm", "+dir-reserve=16"), "a window is a block");
    let [none, small, large] =
        ["", "+dir-reserve=16", "+dir-reserve=64"].map(|policy| reads("checked", "check", policy));
    assert!(none < small && small < large, "{none} {small} {large}");
}

/// Small files on ext2, in ways that papers have timed.
const TIMED: &str = "\
name = \"timed\"
summary = \"ends of phases\"
policies = [\"ext2-orlov\"]
disciplines = [\"async\"]
seeds = [1]

[[workload]]
name = \"plain\"
kind = \"untar-rm\"
tree = { kind = \"source\", directories = 40, files = 600, bytes = 3000000 }

[[workload]]
name = \"synced\"
kind = \"untar-rm\"
tree = { kind = \"source\", directories = 40, files = 600, bytes = 3000000 }
sync = true

[[workload]]
name = \"cold\"
kind = \"untar-rm\"
tree = { kind = \"source\", directories = 40, files = 600, bytes = 3000000 }
cold = true

[[workload]]
name = \"walk\"
kind = \"walk\"
tree = { kind = \"source\", directories = 40, files = 600, bytes = 3000000 }
part = 4

[[workload]]
name = \"postmark\"
kind = \"postmark\"
pool = { files = 200, directories = 4, transactions = 300 }
writers = 2

[[workload]]
name = \"postmark-phases\"
kind = \"postmark\"
pool = { files = 200, directories = 4, transactions = 300 }
writers = 2
by_phase = true

[[system]]
name = \"drive\"
drive = \"sata-7200\"
write_cache = false
queue = 128
format = { kind = \"ext2\", size = \"400M\", block = \"4K\", inode_size = \"128\", blocks = \"ext2-next\" }
cache = { size = \"16M\", cluster = \"64K\", ages = [10, 15, 30] }
cpu = { change = \"50us\", look = \"10us\", copy = \"500M\", unpack = \"100M\" }
";

#[test]
fn phases_end_with_sync_begin_cold_and_are_parts_of_postmark() {
    let (_, found) = all_of(TIMED, &[]);
    let of = |workload: &str| {
        let run = found.iter().find(|run| run.id.workload == workload).unwrap();
        let names: Vec<&str> = run.phases.iter().map(|phase| &*phase.phase).collect();
        (names, run.phases.clone())
    };
    let [(_, plain), (_, synced), (_, cold)] = ["plain", "synced", "cold"].map(of);
    for at in 0..2 {
        // The share of the processor's and the drive's time that is in the phase's.
        let share = |phase: &seekless_lab::run::Phase| {
            let all = phase.counts.cpu_ns + phase.counts.disk.busy_ns;
            phase.seconds * 1e9 / all as f64
        };
        let (plain, synced) = (share(&plain[at]), share(&synced[at]));
        assert!(plain < 0.9 && synced > 0.99, "phase {at}: {plain} {synced}");
    }
    for at in 0..2 {
        assert_eq!(synced[at].counts.cpu_ns, plain[at].counts.cpu_ns, "the same work");
    }
    assert!(plain[1].counts.disk.reads == 0 && cold[1].counts.disk.reads > 40);

    let (names, walk) = of("walk");
    assert_eq!(names, ["find", "stat", "part", "read"]);
    let bytes: Vec<u64> = walk.iter().map(|phase| phase.counts.disk.read_bytes).collect();
    assert!(bytes.is_sorted() && bytes[0] < bytes[1], "{bytes:?}");
    let contents = [2, 3].map(|at: usize| bytes[at] - bytes[1]);
    assert!((3..6).contains(&(contents[1] / contents[0])), "one of four: {contents:?}");

    let ((_, whole), (names, parts)) = (of("postmark"), of("postmark-phases"));
    assert_eq!(names, ["create", "transactions", "delete"]);
    let cpu = |phases: &[seekless_lab::run::Phase]| -> u64 {
        phases.iter().map(|phase| phase.counts.cpu_ns).sum()
    };
    assert_eq!(cpu(&parts), cpu(&whole), "nothing is done twice or left out");
    assert!(parts.iter().all(|phase| phase.counts.cpu_ns > 0));
}
