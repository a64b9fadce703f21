//! Block policies against the rules of `ffs_blkpref`.

use seekless_placement::block::{Request, Wanted, by_name};
use seekless_placement::{GroupSummary, Totals, View, Volume};
use seekless_units::{BlockNo, GroupNo, Lbn};

const NCG: u32 = 8;
const FPG: u64 = 10_000;

fn volume() -> Volume {
    Volume {
        ncg: NCG,
        fpg: FPG as u32,
        frag: 8,
        size: u64::from(NCG) * FPG,
        dblkno: 100,
        cgmask: u32::MAX,
        nindir: 2048,
        maxbpg: 1024,
        maxcontig: 4,
        metaspace: 400,
        ..Volume::default()
    }
}

/// Groups 0, 3 and 6 have less than the average.
fn groups() -> Vec<GroupSummary> {
    let free = |at: u32| GroupSummary {
        nbfree: if at.is_multiple_of(3) { 10 } else { 500 },
        ..GroupSummary::default()
    };
    (0..NCG).map(free).collect()
}

fn data(lbn: u64, index: u64, previous: u64) -> Request {
    let some = |block| (block != 0).then(|| BlockNo::new(block));
    Request {
        group: GroupNo::new(2),
        is_directory: false,
        lbn: Lbn::new(lbn),
        wanted: Wanted::Data { index, previous: some(previous), run_before: None },
        last_direct: None,
        first_indirect: None,
    }
}

fn ask(policy: &str, volume: &Volume, request: &Request) -> Option<u64> {
    let groups = groups();
    let totals: Totals = groups.iter().copied().collect();
    let view = View { volume, groups: &groups, totals: &totals };
    by_name(policy, 1).unwrap().prefer(&view, request).map(BlockNo::get)
}

const META: u64 = 2 * FPG + 100;
const DATA: u64 = META + 400;

#[test]
fn blkpref_of_today() {
    let indirect = |level, lbn, last_direct: Option<u64>| Request {
        wanted: Wanted::Indirect(level),
        last_direct: last_direct.map(BlockNo::new),
        ..data(lbn, 0, 0)
    };
    let directory = Request { is_directory: true, ..data(0, 0, 0) };
    let behind = |at| Request { first_indirect: Some(BlockNo::new(at)), ..data(12, 0, 0) };
    for (what, request, expected) in [
        ("a file begins in the data zone", data(0, 0, 0), DATA),
        ("a directory begins in the metadata zone", directory, META),
        ("a block follows the one before", data(5, 5, 24_000), 24_008),
        ("behind a hole", data(5, 5, 0), DATA),
        ("the first indirect block follows block 11", indirect(1, 12, Some(24_000)), 24_008),
        ("unless block 11 is a hole", indirect(1, 12, None), META),
        ("a double indirect block", indirect(2, 2060, Some(24_000)), META),
        ("a single one below it", indirect(1, 2060, Some(24_000)), META),
        ("block 12 follows the indirect block", behind(24_008), 24_016),
        ("not when that lies in the metadata zone", behind(META + 8), DATA),
        ("nor when it lies in another group", behind(FPG * 3 + 600), DATA),
        ("at maxbpg, still within the first indirect", data(1036, 1024, 24_000), DATA),
        // Group 3 has too little, so that group 4 is next.
        ("at maxbpg, beyond it", data(3084, 1024, 24_000), 4 * FPG + 500),
        // Block 4108 is 4 shares in: group 2 + 4 has too little, so 7.
        ("behind a hole, beyond it", data(4108, 0, 0), 7 * FPG + 500),
        // Group 7's next is 0, which has too little, as has none behind 1.
        ("the sweep begins anew", data(3084, 1024, 7 * FPG), FPG + 500),
    ] {
        assert_eq!(ask("blkpref", &volume(), &request), Some(expected), "{what}");
    }
}

#[test]
fn blkpref_of_old() {
    let with_run = |index, previous, run: u64| {
        let wanted = Wanted::Data {
            index,
            previous: Some(BlockNo::new(previous)),
            run_before: Some(BlockNo::new(run)),
        };
        Request { wanted, ..data(index, index, 0) }
    };
    let indirect = Request { wanted: Wanted::Indirect(1), ..data(12, 0, 0) };
    for (what, request, expected) in [
        ("a file begins in its group", data(0, 0, 0), 2 * FPG + 8),
        ("a block follows the one before", data(5, 5, 24_000), 24_008),
        // Share 0 of group 2, which has enough.
        ("an indirect block", indirect, 2 * FPG + 8),
        ("behind the direct blocks", data(12, 0, 0), 2 * FPG + 8),
        ("at maxbpg", data(1036, 1024, 24_000), 4 * FPG + 8),
        ("four in a row", with_run(6, 24_024, 24_000), 24_032 + 16),
        ("not in a row", with_run(6, 24_024, 23_000), 24_032),
        ("not yet four", with_run(3, 24_024, 24_000), 24_032),
    ] {
        let volume = Volume { rotdelay_frags: 9, ..volume() };
        assert_eq!(ask("old-blkpref", &volume, &request), Some(expected), "{what}");
    }
}

#[test]
fn nowhere_when_all_groups_are_below_the_average() {
    let volume = volume();
    let groups = vec![GroupSummary::default(); NCG as usize];
    let totals = Totals { nbfree: 800, ..Totals::default() };
    let view = View { volume: &volume, groups: &groups, totals: &totals };
    let beyond = data(3084, 1024, 24_000);
    assert_eq!(by_name("blkpref", 1).unwrap().prefer(&view, &beyond), None);
}

#[test]
fn metadata_of_old_volumes_are_shifted() {
    let volume = Volume { cgoffset: 16, cgmask: !3, ..volume() };
    assert_eq!(volume.meta_zone(GroupNo::new(6)).get(), 6 * FPG + 100 + 2 * 16);
    assert_eq!(volume.group_of(BlockNo::new(6 * FPG + 9999)), GroupNo::new(6));
}

#[test]
fn plain_policies() {
    let volume = volume();
    let groups = groups();
    let totals: Totals = groups.iter().copied().collect();
    let view = View { volume: &volume, groups: &groups, totals: &totals };
    let (first, later) = (data(0, 0, 0), data(5, 5, 24_000));

    let mut next = by_name("next-free", 1).unwrap();
    assert_eq!(next.prefer(&view, &later), Some(BlockNo::new(100)));
    next.allocated(BlockNo::new(70_000));
    assert_eq!(next.prefer(&view, &first), Some(BlockNo::new(70_008)));
    next.allocated(BlockNo::new(volume.size - 8));
    assert_eq!(next.prefer(&view, &first), Some(BlockNo::new(100)));

    assert_eq!(ask("near-start", &volume, &first), Some(100));
    assert_eq!(ask("near-start", &volume, &later), Some(24_008));

    let mut random = by_name("random-start", 1).unwrap();
    let starts: Vec<u64> = (0..200).map(|_| random.prefer(&view, &first).unwrap().get()).collect();
    assert!(starts.iter().all(|at| at % 8 == 0 && *at < volume.size));
    for group in 0..u64::from(NCG) {
        let here = starts.iter().filter(|&&at| at / FPG == group).count();
        assert!((10..45).contains(&here), "{here} of 200 in group {group}");
    }
    assert_eq!(random.prefer(&view, &later), Some(BlockNo::new(24_008)));
}
