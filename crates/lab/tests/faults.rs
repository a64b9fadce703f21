//! What is wrong with an experiment's file is told with its line and key.

use seekless_lab::builtin;
use seekless_lab::experiment::Experiment;

/// A text's fault: the how manyth of which text, from 1, becomes what, whose
/// last line is at fault; the key that is told, and a word of what is said.
type Case = (usize, &'static str, &'static str, &'static str, &'static str);

/// Fails unless each fault is told with its line and key.
fn told(text: &str, cases: &[Case]) {
    for (nth, from, to, key, says) in cases {
        let (at, _) = text.match_indices(from).nth(nth - 1).unwrap_or_else(|| panic!("{from}"));
        let changed = format!("{}{to}{}", &text[..at], &text[at + from.len()..]);
        let line = changed[..at + to.len()].matches('\n').count() + 1;
        let error = Experiment::parse(&changed, "mine.toml").map(|_| to).expect_err(to);
        let (error, expected) = (error.to_string(), format!("mine.toml:{line}: {key}: "));
        assert!(error.starts_with(&expected), "{error} / {expected} / {to}");
        assert!(error.contains(says), "{error} / {says} / {to}");
    }
}

fn text(name: &str) -> &'static str {
    builtin::text(name).unwrap()
}

#[test]
fn values_have_their_line_in_every_table() {
    told(
        text("dirpref"),
        &[
            (1, "queue = ", "queues = ", "queues", "unknown field"),
            (2, "queue = 256", "queue = 0", "queue", "not in the range 1"),
            (2, "queue = 256", "queue = 256\noffset = \"700\"", "offset", "whole sectors"),
            (1, "look = \"27us\"", "look = \"27\"", "look", "27"),
            (1, "look = \"27us\"", "look = \"27min\"", "look", "27min"),
            (1, "size = \"42592M\"", "size = \"0\"", "size", "not in the range 1"),
            (1, "size = \"7928M\"", "size = \"7928Q\"", "size", "7928Q"),
            (1, "drive = \"ide-8gb\"", "drive = \"ide-9gb\"", "drive", "ide-9gb"),
            (1, "copy = \"100M\"", "copy = \"0\"", "copy", "must not be zero"),
            (1, "unpack = \"15M\"", "unpack = \"0\"", "unpack", "must not be zero"),
            (
                1,
                "unpack = \"15M\"",
                "unpack = \"15M\"\ncompile = \"0\"",
                "compile",
                "must not be zero",
            ),
            (2, "cluster = \"8K\"", "cluster = \"4K\"", "cluster", "less than the block size"),
            (2, "page = \"4K\"", "page = \"0\"", "page", "power of two"),
            (1, "size = \"64M\"", "size = \"1\"", "size", "less than the block size"),
            (2, "page = \"4K\"", "page = \"4K\"\npages = 1", "pages", "unknown field"),
        ],
    );
}

#[test]
fn a_format_that_cannot_be_made_is_found_in_its_system() {
    told(
        text("dirpref"),
        &[
            (2, "block = \"8K\"", "block = \"7\"", "block", "power of two"),
            (2, "fragment = \"1K\"", "fragment = \"1000\"", "fragment", "power of two"),
            (
                2,
                "blocks_per_group = 1024",
                "blocks_per_group = 0",
                "blocks_per_group",
                "not in the range",
            ),
            (2, "bytes_per_inode = \"4K\"", "bytes_per_inode = \"0\"", "bytes_per_inode", "0"),
            AVGFILESIZE,
            (1, "size = \"42592M\"", "size = \"1T\"", "size", "does not fit on dtla-307045"),
            (1, "size = \"7928M\"", "size = \"9G\"", "size", "does not fit on ide-8gb"),
        ],
    );
    // A volume that begins too far behind.
    let behind = text("dirpref").replacen("queue = 256", "queue = 256\noffset = \"1G\"", 1);
    let error = Experiment::parse(&behind, "mine.toml").unwrap_err().to_string();
    assert!(error.contains("behind 1073741824)") && error.contains(": size: "), "{error}");
    // What the maker says of several values together is said of all of them.
    let cases =
        [("fragment = \"1K\"", "fragment = \"512\""), ("size = \"42592M\"", "size = \"32K\"")];
    for (from, to) in cases {
        let (start, second) =
            text("dirpref").split_at(text("dirpref").rfind("[system.format]").unwrap());
        let changed = format!("{start}{}", second.replacen(from, to, 1));
        let line = start.matches('\n').count() + 1;
        let error = Experiment::parse(&changed, "mine.toml").unwrap_err().to_string();
        assert!(error.starts_with(&format!("mine.toml:{line}: format: ")), "{error}");
    }
}

const AVGFILESIZE: Case = (
    2,
    "kind = \"ufs1\"",
    "kind = \"ufs1\"\navgfilesize = \"5G\"",
    "avgfilesize",
    "not in the range 1 to 2147483647",
);

#[test]
fn names_are_fit_for_files() {
    let long = format!("name = \"{}\"", "n".repeat(65));
    for wrong in
        ["name = \"\"", "name = \"a b\"", "name = \"a/b\"", "name = \"x/../../evil\"", &long]
            .into_iter()
            .chain(["name = \".hidden\"", "name = \"-o\"", "name = \"\u{fc}\"", "name = \"a\\nb\""])
    {
        for name in ["dirpref", "ports", "second"] {
            let from = format!("name = \"{name}\"");
            let at = text("dirpref").find(&from).unwrap();
            let line = text("dirpref")[..at].matches('\n').count() + 1;
            let changed = text("dirpref").replacen(&from, wrong, 1);
            let error = Experiment::parse(&changed, "mine.toml").unwrap_err().to_string();
            let expected = format!("mine.toml:{line}: name: invalid name");
            assert!(error.starts_with(&expected), "{error} / {expected}");
        }
    }
    let most = format!("name = \"{}\"", "n".repeat(64));
    let sound = text("dirpref").replace("name = \"dirpref\"", &most);
    assert!(Experiment::parse(&sound, "mine.toml").is_ok());
    told(text("dirpref"), &[(1, "name = \"second\"", "name = \"first\"", "name", "twice")]);
}

#[test]
fn lists_have_something_and_nothing_twice() {
    told(
        text("dirpref"),
        &[
            (1, "\"orlov\"]", "\"orlof\"]", "policies", "orlof"),
            (1, "\"orlov\"]", "\"orlov\", \"orlov\"]", "policies", "'orlov' is given twice"),
            (1, "\"softdep\"]", "\"softdeps\"]", "disciplines", "softdeps"),
            (1, "\"softdep\"]", "\"normal\"]", "disciplines", "'normal' is given twice"),
            (1, "seeds = [1]", "seeds = []", "seeds", "at least one is required"),
            (1, "seeds = [1]", "seeds = [3,\n4,\n3]", "seeds", "'3' is given twice"),
            (
                1,
                "seeds = [1]",
                "seeds = [1]\nrepetitions = 0",
                "repetitions",
                "not in the range 1 to 1000",
            ),
            (
                1,
                "seeds = [1]",
                "seeds = [1]\nrepetitions = 1001",
                "repetitions",
                "not in the range",
            ),
            (
                1,
                "kind = \"untar-rm\"",
                "kind = \"untar-rm\"\ndisciplines = []",
                "disciplines",
                "at least one is required",
            ),
        ],
    );
    let twice = "disciplines = [\"softdep\", \"softdep\"]";
    told(text("softdep"), &[(3, "disciplines = [\"softdep\"]", twice, "disciplines", "twice")]);
}

#[test]
fn what_a_workload_needs_and_has_no_use_for_is_told() {
    told(
        text("softdep"),
        &[
            (1, "kind = \"remove\"", "kind = \"remove\"\nrounds = 3", "rounds", "torture"),
            (1, "kind = \"remove\"", "kind = \"remove\"\nshuffled = true", "shuffled", "tree-then"),
            (1, "rounds = 1000", "rounds = 0", "rounds", "not in the range 1 to 10000"),
            (2, "max_softdeps = 4496", "max_softdeps = 0", "max_softdeps", "not in the range 1"),
            (1, "tickdelay = 20", "tickdelay = 0", "tickdelay", "not in the range 1"),
        ],
    );
    let trees = "tree = { kind = \"flat\", directories = 0, files = 16703, len = 2000 }";
    let tree = "tree = { kind = \"flat\", directories = 1, files = 16703, len = 2000 }";
    told(text("softdep"), &[(2, tree, trees, "directories", "not in the range 1")]);
    told(text("softdep"), &[(2, "len = 2000 }", "lem = 2000 }", "tree", "unknown field `lem`")]);
    // A missing key has the line of its table.
    let lacks = text("dirpref").replace("kind = \"untar-rm\"", "kind = \"torture\"");
    let line = lacks.lines().position(|line| line == "[[workload]]").unwrap() + 1;
    let error = Experiment::parse(&lacks, "mine.toml").unwrap_err().to_string();
    assert!(error.starts_with(&format!("mine.toml:{line}: rounds: ")), "{error}");
}

#[test]
fn sweeps_and_runs_have_bounds() {
    let maps = text("maxcontigdirs");
    told(
        maps,
        &[
            (1, "avgfilesize = [", "avgfilesizes = [", "avgfilesizes", "unknown field"),
            (
                1,
                "avgfpdir = [4, 16, 64, 256]",
                "avgfpdir = [4,\n0]",
                "avgfpdir",
                "0 is not in the range",
            ),
            (1, "avgfpdir = [4, 16, 64, 256]", "avgfpdir = [4]\nsize = [\"60T\"]", "size", "fit"),
            (1, "avgfpdir = [4, 16, 64, 256]", "size = [\"65T\"]", "size", "not in the range 1"),
        ],
    );
    let sweep = maps.find("[system.sweep]").unwrap();
    let line = maps[..sweep].matches('\n').count() + 1;
    let swept = |counts: Vec<u32>| {
        let text = maps.replace("avgfpdir = [4, 16, 64, 256]", &format!("avgfpdir = {counts:?}"));
        Experiment::parse(&text, "mine.toml").unwrap_err().to_string()
    };
    let error = swept((1..=2501).collect());
    assert_eq!(error, format!("mine.toml:{line}: sweep: more than 10000 systems"));
    let error = swept(vec![4, 4]);
    assert!(error.starts_with(&format!("mine.toml:{line}: sweep: 'disk-4K-4' is given twice")));
    let seeds: Vec<u64> = (0..6251).collect();
    let many = text("dirpref").replace("seeds = [1]", &format!("seeds = {seeds:?}"));
    let error = Experiment::parse(&many, "mine.toml").unwrap_err().to_string();
    assert_eq!(error, "mine.toml:10: seeds: 100016 runs, more than 100000");
}

#[test]
fn what_was_published_is_of_what_is_run() {
    told(
        text("dirpref"),
        &[
            (2, "system = \"first\"", "system = \"third\"", "system", "unknown system 'third'"),
            (
                2,
                "workload = \"ports\"",
                "workload = \"port\"",
                "workload",
                "unknown workload 'port'",
            ),
            (2, "phase = \"rm\"", "phase = \"make\"", "phase", "available: untar, rm"),
            (1, "phase = \"rm\"", "phase = \"untar\"", "phase", "this cell is given twice"),
            (1, "old_s = 667.0", "old_s = nan", "old_s", "must be a number"),
            (1, "new_s = 472.0", "new_s = -1.0", "new_s", "must be a number"),
            (1, "speedup = 1.41", "speedup = inf", "speedup", "must be a number"),
        ],
    );
    let from = "workload = \"small-tree\"\ndiscipline = \"normal\"";
    let other = "workload = \"mh-100\"\ndiscipline = \"normal\"";
    told(
        text("softdep"),
        &[(1, from, other, "discipline", "'normal' is not one of the disciplines run")],
    );
}

#[test]
fn volumes_policies_and_systems_go_together() {
    let in_turn = "in_turn = true";
    told(
        text("reservation"),
        &[
            (1, "policies = [\"ext2-orlov\"]", "policies = []", "policies", "at least one"),
            (
                1,
                "policies = [\"ext2-orlov\"]",
                "policies = [\"linear\"]",
                "policies",
                "not one of the policies",
            ),
            (1, in_turn, "in_turn = true\nsystems = []", "systems", "at least one"),
            (1, in_turn, "in_turn = true\nsystems = [\"none\"]", "systems", "unknown system"),
        ],
    );
    let fails = |from: &str, to: &str| {
        let text = text("reservation").replace(from, to);
        Experiment::parse(&text, "mine.toml").map(drop).expect_err(to).to_string()
    };
    assert!(fails("volumes = 2", "volumes = 3").contains("not in the range 1 to 2"));
    assert!(fails("volumes = 2", "volumes = 1").contains("needs 2 volumes"));
    assert!(fails("dir-reserve=64", "dir-preserve").contains("dir-reserve"));
    assert!(fails("inode_size = \"128\", ", "").contains("inode_size"));
    assert!(fails("journal = \"128M\"", "fragment = \"1K\"").contains("fragment"));
    assert!(fails("atime = true", "in_turn = true").contains("tree-then-files"));
    assert!(fails(in_turn, "in_turn = true\nshuffled = true").contains("shuffled"));
    for key in ["linked_areas", "check"] {
        assert!(fails("atime = true", &format!("{key} = true")).contains("tree-then-files"));
    }
    assert!(fails(in_turn, "in_turn = true\npart = 4").contains("only for 'walk'"));
    assert!(fails(in_turn, "in_turn = true\nby_phase = true").contains("only for 'postmark'"));
    assert!(fails(in_turn, "remount_after = 3").contains("only with 'in_turn'"));
    assert!(fails(in_turn, "in_turn = true\nremount_after = 0").contains("range 1 to"));
}

/// A volume of FAT and one of UFS.
const FAT: &str = "\
name = \"fat\"
summary = \"FAT\"
policies = [\"next-fit\"]
disciplines = [\"normal\"]
seeds = [1]

[[workload]]
name = \"tree\"
kind = \"untar-rm\"
tree = { kind = \"flat\", directories = 2, files = 9, len = 100 }

[[system]]
name = \"drive\"
drive = \"sata-7200\"
queue = 256

[system.format]
kind = \"fat32\"
size = \"400M\"
cluster = \"4K\"
fats = 2

[system.cache]
size = \"1M\"
cluster = \"64K\"
ages = [10, 15, 30]

[system.cpu]
change = \"100us\"
look = \"20us\"
copy = \"100M\"
unpack = \"20M\"
";

#[test]
fn what_fat_lacks_and_others_do_not_have_is_told() {
    assert!(Experiment::parse(FAT, "mine.toml").is_ok());
    let fats = "fats = 2";
    told(
        FAT,
        &[
            (1, "[\"next-fit\"]", "[\"orlov\"]", "policies", "first-fit, next-fit, random-near"),
            (1, "[\"next-fit\"]", "[\"next-fit+parent\"]", "policies", "next-fit+parent"),
            (1, "cluster = \"4K\"", "cluster = \"3K\"", "cluster", "power of two"),
            (1, fats, "fats = 0", "fats", "not in the range 1 to 4"),
            (1, fats, "fats = 5", "fats", "not in the range 1 to 4"),
            (1, fats, "fats = 2\nblock = \"4K\"", "block", "not an option of fat32"),
            (1, fats, "fats = 2\nblocks = \"blkpref\"", "blocks", "not an option of FAT"),
            (1, "cluster = \"64K\"", "cluster = \"2K\"", "cluster", "less than the cluster size"),
            (1, "ages = [10, 15, 30]", "ages = [1, 1, 1]\npage = \"4K\"", "page", "fat32"),
            (
                1,
                "\"untar-rm\"",
                "\"make-nodes\"",
                "kind",
                "device nodes, which FAT lacks: drive is",
            ),
            (
                1,
                "len = 100 }",
                "len = 100 }\ndisciplines = [\"journal=data\"]",
                "disciplines",
                "'journal=data' needs a journal: drive is fat32",
            ),
        ],
    );
    let fails = |text: &str, from: &str, to: &str| {
        let changed = text.replacen(from, to, 1);
        assert_ne!(text, changed, "{from}");
        Experiment::parse(&changed, "mine.toml").map(drop).expect_err(to).to_string()
    };
    // A missing key has the line of its table.
    let line = FAT.lines().position(|line| line == "[system.format]").unwrap() + 1;
    let error = fails(FAT, "cluster = \"4K\"\n", "");
    assert_eq!(error, format!("mine.toml:{line}: cluster: fat32 needs it"));
    // What the maker says: too many clusters for 16 bits, a volume without room for any.
    let error = fails(FAT, "kind = \"fat32\"", "kind = \"fat16\"");
    assert!(error.starts_with(&format!("mine.toml:{line}: format: ")), "{error}");
    assert!(fails(FAT, "400M", "16K").starts_with(&format!("mine.toml:{line}: format: ")));
    for key in
        ["fragment = \"1K\"", "bytes_per_inode = \"4K\"", "journal = \"4M\"", "features = \"^x\""]
    {
        let name = key.split(' ').next().unwrap();
        assert!(fails(FAT, fats, &format!("fats = 2\n{key}")).contains(name), "{key}");
    }
    // And the other way round.
    let (ufs, ext) = (text("dirpref"), text("reservation"));
    let block = "block = \"8K\"";
    assert!(fails(ufs, block, "block = \"8K\"\nfats = 2").contains("not an option of ufs1"));
    assert!(
        fails(ufs, block, "block = \"8K\"\ncluster = \"8K\"").contains("not an option of ufs1")
    );
    assert!(fails(ufs, block, "").contains("block: ufs1 needs it"));
    assert!(fails(ufs, "blocks = \"old-blkpref\"", "").contains("blocks: ufs1 needs it"));
    assert!(fails(ext, "kind = \"ext3\"", "fats = 2, kind = \"ext3\"").contains("option of ext3"));
}

#[test]
fn what_an_archive_and_a_ranking_need_is_told() {
    let writers = "writers = 4";
    told(
        text("tarcp"),
        &[
            (1, writers, "writers = 0", "writers", "not in the range 1 to 64"),
            (1, writers, "writers = 4\nrecord = \"0\"", "record", "not in the range"),
            (1, writers, "writers = 4\nrecord = \"700\"", "record", "whole sectors"),
            (1, "transactions = 60000", "transactions = 0", "transactions", "not in the range"),
            (1, "{ files = 60000", "{ files = 0", "files", "not in the range"),
            (1, "apart = 0.15", "apart = -1.0", "apart", "at least 0"),
            (1, "[\"ffs2/softdep\"]", "[\"ffs2/sync\"]", "except", "nothing is published of"),
            (1, "dirty = 1824", "dirty = 0", "dirty", "not in the range"),
        ],
    );
    told(
        text("dirpref"),
        &[(1, "kind = \"untar-rm\"", "kind = \"untar-rm\"\nwriters = 2", "writers", "'archive'")],
    );
    let of = |directories: u32| {
        let directories = format!("directories = {directories}");
        let text = text("tarcp").replace("directories = 1700", &directories);
        Experiment::parse(&text, "mine.toml").map(drop)
    };
    assert!(of(4).is_ok());
    let error = of(3).unwrap_err().to_string();
    assert!(error.contains("writers: is allowed only for 'sources' with a directory"), "{error}");
}

#[test]
fn what_does_not_fit_an_ext_volume_is_told_before_it_runs() {
    let text = text("reservation");
    let fails = |from: &str, to: &str| {
        let changed = text.replace(from, to);
        assert_ne!(text, changed, "{from}");
        Experiment::parse(&changed, "mine.toml").map(drop).expect_err(to).to_string()
    };
    // 32,768 blocks of a group have 16,384 inodes here, one for 8 KiB.
    let line = 1 + text.lines().position(|line| line.contains("dir-reserve=16\"")).unwrap();
    let error = fails("+dir-reserve=16\"", "+dir-reserve=16385\"");
    assert!(error.starts_with(&format!("mine.toml:{line}: policies: large-memory: ")), "{error}");
    assert!(error.contains("16385") && error.contains("16384"), "{error}");
    let most = text.replace("+dir-reserve=16\"", "+dir-reserve=16384\"");
    assert!(Experiment::parse(&most, "mine.toml").is_ok());
    let error = fails("journal = \"128M\"", "features = \"^has_journal\"");
    assert!(
        error.contains("'journal=writeback' needs a journal: large-memory has none"),
        "{error}"
    );
    let error = fails("[\"journal=writeback\", ", "[\"async\", ");
    assert!(error.contains("'async' is for volumes without a journal"), "{error}");
}

#[test]
fn what_snapshots_need_is_told() {
    let kind = "kind = \"snapshots\"";
    told(
        text("snapshots"),
        &[
            (1, "snapshots = 0", "snapshots = 20", "snapshots", "not in the range 0 to 19"),
            (1, "snapshots = 0", "snapshots = -1", "snapshots", "-1"),
        ],
    );
    told(
        text("softdep"),
        &[(1, "kind = \"remove\"", "kind = \"remove\"\nsnapshots = 1", "snapshots", "'snapshots'")],
    );
    let fails = |text: &str, from: &str, to: &str| {
        let changed = text.replacen(from, to, 1);
        assert_ne!(text, changed, "{from}");
        Experiment::parse(&changed, "mine.toml").map(drop).expect_err(to).to_string()
    };
    // A missing key has the line of its table.
    let line = text("snapshots").lines().position(|line| line == "[[workload]]").unwrap() + 1;
    let error = fails(text("snapshots"), "snapshots = 0\n", "");
    assert!(error.starts_with(&format!("mine.toml:{line}: snapshots: ")), "{error}");
    let other = format!("{kind}\nsnapshots = 0\ndisciplines = [\"normal\"]");
    let error = fails(text("snapshots"), &format!("{kind}\nsnapshots = 0"), &other);
    assert!(error.contains("disciplines: 'normal' has no snapshots"), "{error}");
    let error = fails(FAT, "kind = \"untar-rm\"", &format!("{kind}\nsnapshots = 1"));
    assert!(error.contains("kind: needs snapshots, which FAT lacks: drive is fat32"), "{error}");
}
