//! Growths that are cut off at each write to the old volume and some to new groups, repaired by
//! `seekless check`, and read by dissect.ffs.

use crate::judges::{Scratch, dissect, manifest, ready, run, same, seekless, text};
use seekless_crash::recorder::Completion;
use seekless_crash::{Recorder, Step};
use seekless_device::MemoryDevice;
use seekless_fs::Timestamp;
use seekless_units::ByteLen;
use std::fs;
use std::sync::Arc;

#[test]
fn growths_that_were_cut_off_keep_all_files() {
    if !ready("makefs") || !dissect::ready() {
        return;
    }
    let scratch = Scratch::new("grow-cut");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir_all(format!("{tree}/dir")).expect("mkdir");
    for n in 1..80usize {
        fs::write(format!("{tree}/dir/{n}"), vec![n as u8; n * 711]).expect("write");
    }
    let mut repaired = 0;
    for version in ["1", "2"] {
        // Of 512 bytes, so that the summary area moves.
        let sizes = "bsize=4096,fsize=512,density=8192,maxbpcg=150";
        let options = format!("version={version},{sizes}");
        run("makefs", &["-t", "ffs", "-B", "le", "-s", "5m", "-o", &options, &image, &tree]);
        let wanted = manifest(&image, &[]);
        let files = dissect::of_manifest(&wanted);
        let mut first = fs::read(&image).expect("image");
        // More groups than the summary area has entries for.
        let len = first.len() * 5 / 2;
        first.resize(len, 0xA5);
        let device = MemoryDevice::new(first.clone());
        let recorder = Arc::new(Recorder::new(Arc::new(device), Completion::AtOnce));
        let now = Timestamp { secs: 1_700_000_000, nanos: 0 };
        let growth =
            seekless_ffs::grow(recorder.clone(), ByteLen::new(len as u64), now).expect("grown");
        assert!(growth.moves_summary && growth.before < growth.after, "{growth:?}");
        let write = |step| match step {
            Step::Write { at, bytes, .. } => Some((at, bytes)),
            _ => None,
        };
        let writes: Vec<_> = recorder.take().steps.into_iter().filter_map(write).collect();
        let own = growth.before.get();
        let later = |n: &usize| writes.get(*n).is_none_or(|(at, _)| at.to_bytes().get() < own);
        for count in (0..=writes.len()).filter(|n| later(n) || n % 50 == 0) {
            let mut state = first.clone();
            for (at, bytes) in &writes[..count] {
                let at = at.to_bytes().get() as usize;
                state[at..at + bytes.len()].copy_from_slice(bytes);
            }
            fs::write(&image, &state).expect("image");
            let what = format!("UFS{version}, {count} of {} writes", writes.len());
            let code = seekless(&["check", "-p", &image]).status.code();
            if code == Some(4) {
                repaired += 1;
                assert_eq!(seekless(&["check", "-y", &image]).status.code(), Some(1), "{what}");
            } else {
                assert!(matches!(code, Some(0 | 1)), "{what}: {code:?}");
            }
            text(&seekless(&["check", &image]));
            same(&what, &wanted, &manifest(&image, &[]));
            dissect::agrees(&what, &files, &image);
        }
    }
    assert!(repaired > 5, "{repaired} states needed a repair");
}
