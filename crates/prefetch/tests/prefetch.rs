//! Parts of a file read ahead of simulated users.

use seekless_prefetch::{Fetch, FetchList, ListError, OtherVolume, Prefetcher, User};
use std::fs::{File, OpenOptions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const PART: u64 = 4096;

/// Parts of a volume, the last one shorter, backwards.
fn list(parts: u64) -> FetchList {
    let fetches = (0..parts).map(|n| Fetch {
        offset: (parts - 1 - n) * PART,
        length: PART,
        after: n * PART,
        sure: if n % 4 == 3 { 50 } else { 100 },
    });
    FetchList {
        volume: Some(parts * PART - 10),
        chunk: Some(PART),
        traces: 2,
        fetches: fetches.collect(),
    }
}

fn volume(len: u64) -> (tempfile::TempDir, File) {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("volume");
    std::fs::write(&path, vec![1; len as usize]).expect("write");
    let file = File::open(path).expect("open");
    (dir, file)
}

#[test]
fn a_list_is_read_as_it_was_written() {
    let list = list(20);
    let mut text = Vec::new();
    list.write(&mut text).expect("memory");
    assert_eq!(FetchList::parse(&text[..]).expect("a list"), list);
    // Ranges, as other tools write them.
    let ranges = FetchList::parse(&b"# made by hand\n4096 512\n\n0 100\n"[..]).expect("a list");
    let part = |offset, length, after| Fetch { offset, length, after, sure: 100 };
    assert_eq!(ranges.fetches, [part(4096, 512, 0), part(0, 100, 512)]);
    assert_eq!((ranges.volume, ranges.traces), (None, 1));
}

#[test]
fn faults_of_a_list_are_named() {
    let far = u64::MAX;
    let lines = [
        ("1 2 3\n".into(), 1),
        ("1 2\n3 x\n".into(), 2),
        ("1 0\n".into(), 1),
        (format!("{far} 2\n"), 1),
        (format!("0 {far}\n0 {far}\n"), 2),
        ("0 4 0 101\n".into(), 1),
        ("-1 4\n".into(), 1),
        ("# seekless chunks 1 volume\n".into(), 1),
        ("# seekless chunks 1 volume=x\n0 4\n".into(), 1),
    ];
    for (text, at) in lines {
        let text: String = text;
        let why = FetchList::parse(text.as_bytes()).expect_err(&text);
        assert!(matches!(why, ListError::Line { line, .. } if line == at), "{text}: {why}");
    }
    let later = FetchList::parse(&b"# seekless chunks 2 volume=1\n0 1\n"[..]);
    assert!(matches!(later, Err(ListError::Version(version)) if version == "2"));
    assert!(matches!(FetchList::parse(&b"# nothing\n"[..]), Err(ListError::Empty)));
    assert!(matches!(FetchList::parse(&b"1 \xff\n"[..]), Err(ListError::Io(_))));
}

#[test]
fn all_parts_are_read() {
    let list = list(20);
    let (_dir, file) = volume(20 * PART - 10);
    for readers in [1, 3, 100] {
        let fetched = Prefetcher::new(&list).readers(readers).run(&file).expect("a run");
        assert_eq!((fetched.parts, fetched.bytes, fetched.left), (20, 20 * PART - 10, 0));
    }
    let sure = Prefetcher::new(&list).least_sure(51).run(&file).expect("a run");
    assert_eq!((sure.parts, sure.unsure), (15, 5));
}

#[test]
fn other_volumes_are_refused() {
    let (_dir, file) = volume(20 * PART);
    let why = Prefetcher::new(&list(20)).run(&file).expect_err("another volume");
    let other = why.get_ref().and_then(|why| why.downcast_ref::<OtherVolume>());
    assert_eq!(other, Some(&OtherVolume { listed: 20 * PART - 10, found: 20 * PART }));
    // Parts behind the end, in a list of the right size too, and in one that was made by a program.
    let header = "# seekless chunks 1 volume=81920\n";
    for text in ["81919 2\n".into(), format!("{header}81920 4096 0 100\n")] {
        let list = FetchList::parse(text.as_bytes()).expect("a list");
        assert!(Prefetcher::new(&list).run(&file).is_err(), "{text}");
    }
    let fetch = Fetch { offset: 5, length: u64::MAX, after: 0, sure: 100 };
    let list = FetchList { volume: Some(20 * PART), fetches: vec![fetch], ..FetchList::default() };
    assert!(Prefetcher::new(&list).run(&file).is_err());
}

#[test]
fn parts_that_cannot_be_read_are_named() {
    let (dir, _) = volume(20 * PART - 10);
    // Nothing can be read through it.
    let write_only = OpenOptions::new().write(true).open(dir.path().join("volume")).expect("open");
    let list = list(20);
    let fetched = Prefetcher::new(&list).run(&write_only).expect("a run");
    assert_eq!((fetched.parts, fetched.failed.len()), (0, 20));
    let mut failed: Vec<Fetch> = fetched.failed.iter().map(|failed| failed.fetch).collect();
    failed.sort_unstable_by_key(|fetch| fetch.after);
    assert_eq!(failed, list.fetches);
}

/// A user who is behind a certain number of bytes, which grows each time it is asked for.
struct Walker {
    at: AtomicU64,
    step: u64,
    /// The most bytes that were read beyond its place.
    most: AtomicU64,
}

impl User for Walker {
    fn read(&self, own: &AtomicU64) -> Option<u64> {
        let at = self.at.fetch_add(self.step, Ordering::Relaxed);
        self.most.fetch_max(own.load(Ordering::SeqCst).saturating_sub(at), Ordering::Relaxed);
        Some(at)
    }
}

fn walker(at: u64, step: u64) -> Walker {
    Walker { at: at.into(), step, most: 0.into() }
}

#[test]
fn parts_that_the_user_has_passed_are_left_out() {
    let list = list(20);
    let (_dir, file) = volume(20 * PART - 10);
    let user = walker(PART + 1, 0);
    let fetched = Prefetcher::new(&list).user(&user).run(&file).expect("a run");
    assert_eq!((fetched.parts, fetched.passed), (18, 2));
}

#[test]
fn a_window_bounds_how_far_ahead_is_read() {
    let list = list(20);
    let (_dir, file) = volume(20 * PART - 10);
    // The user stands still: of the parts needed behind 0, 1, 2 and 3 parts, three are within.
    let stop = AtomicBool::new(false);
    let user = walker(0, 0);
    let prefetcher = Prefetcher::new(&list).user(&user).window(3 * PART - 1).readers(2).stop(&stop);
    let fetched = std::thread::scope(|threads| {
        let run = threads.spawn(|| prefetcher.run(&file).expect("a run"));
        // The first part is the last one of the volume, which is shorter.
        while user.most.load(Ordering::Relaxed) <= 2 * PART {
            std::thread::sleep(Duration::from_millis(2));
        }
        stop.store(true, Ordering::Relaxed);
        run.join().expect("a thread")
    });
    assert_eq!((fetched.parts, fetched.left), (3, 17));
    // The user reads on: all is read, and never more than the window and a part ahead.
    let user = walker(0, 500);
    let prefetcher = Prefetcher::new(&list).user(&user).window(3 * PART - 1).readers(1);
    let fetched = prefetcher.run(&file).expect("a run");
    assert_eq!((fetched.parts + fetched.passed, fetched.left), (20, 0));
    assert!(fetched.parts > 15, "{fetched:?}");
    assert!(user.most.load(Ordering::Relaxed) <= 4 * PART, "{:?}", user.most);
}
