//! Images of trees that change again and again: those that are like a layout list have the bytes of
//! those that are like the image itself.

use seekless_compose::base::Likeness;
use seekless_compose::build::Build;
use seekless_compose::formats::{OlderImages, Options};
use seekless_compose::freed::Freed;
use seekless_compose::layout_list::{ListParts, ListRequest};
use seekless_compose::sources::{self, Purpose, SourceOptions};
use seekless_compose::write::Destination;
use seekless_device::{BlockDevice, DeviceError};
use seekless_ext as ext;
use seekless_fat::{self as fat, FatWidth, MakeOptions};
use seekless_formats::{EXT, FAT};
use seekless_fs::format::OpenOptions;
use seekless_images::output::NO_INPUTS;
use seekless_images::{Error, ErrorKind, Place, Target, Unwatched};
use seekless_layout::planner::{Storage, StorageKind};
use seekless_layout::trace::{Event, Events, Op};
use seekless_units::{ByteLen, Lba, Nanos};
use std::fs;
use std::path::{Path, PathBuf};

fn ext_options(block_size: u32, features: ext::Features) -> Options {
    Options::Ext(ext::BuildOptions { block_size, features, ..ext::BuildOptions::default() })
}

fn fat_options(width: FatWidth, spare: u64) -> Options {
    let mut options = fat::BuildOptions::new(MakeOptions::new(Some(width), ByteLen::ZERO));
    (options.is_fitted, options.spare.bytes) = (true, ByteLen::new(spare));
    Options::Fat(lossy(options))
}

fn lossy(mut options: fat::BuildOptions) -> fat::BuildOptions {
    (options.losses.owners, options.losses.modes, options.losses.links) = (true, true, true);
    options
}

/// Numbers of a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let most = [60, most / 10, most][self.below(3)];
        let len = self.below(most);
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// A tree on the disk of which images are made.
struct Work {
    dir: tempfile::TempDir,
    random: Random,
    /// Most bytes of a file.
    most: usize,
}

impl Work {
    fn new(seed: u64, most: usize) -> Self {
        let mut work = Self { dir: tempfile::tempdir().unwrap(), random: Random(seed), most };
        for number in 0..60 {
            let path = work.path(&format!("tree/d{}/file-{number}", number % 5));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, work.random.bytes(most)).unwrap();
        }
        work
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn files(&self) -> Vec<PathBuf> {
        let dirs = fs::read_dir(self.path("tree")).unwrap().map(|dir| dir.unwrap().path());
        let files = dirs.flat_map(|dir| fs::read_dir(dir).unwrap());
        let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    }

    /// Changes files as upgrades do.
    fn change(&mut self) {
        for step in 0..25 {
            let files = self.files();
            let file = files[self.random.below(files.len())].clone();
            let name = format!("new-{step}-{}", self.random.below(100_000));
            let dir = format!("tree/d{}", self.random.below(5));
            let other = self.path(&dir).join(name);
            let bytes = self.random.bytes(self.most);
            match self.random.below(6) {
                0 => fs::remove_file(file).unwrap(),
                1 => fs::rename(file, other).unwrap(),
                2 => fs::write(&file, [fs::read(&file).unwrap(), bytes].concat()).unwrap(),
                3 => {
                    // Grown, and with a byte changed.
                    let mut all = [fs::read(&file).unwrap(), bytes].concat();
                    let at = self.random.below(all.len().max(1));
                    all.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1);
                    fs::write(file, all).unwrap();
                }
                4 => fs::write(file, bytes).unwrap(),
                _ => fs::write(other, bytes).unwrap(),
            }
        }
    }

    /// Reads of every fifth file.
    fn trace(&self) -> Events {
        let read = |path: &PathBuf| {
            let within = path.strip_prefix(self.path("tree")).unwrap().display();
            Event::new(Nanos::ZERO, Op::Read, format!("/{within}").into())
        };
        self.files().iter().rev().step_by(5).map(read).collect()
    }

    fn list(&self, image: &Path, list: &Path) -> Result<(), Error> {
        let place = Place::default();
        let open = OpenOptions::default();
        let made = ListRequest { image, place: &place, open, unit: None }.make()?;
        let again = ListRequest { image, place: &place, open, unit: None }.make()?;
        assert_eq!(made, again, "the same image has the same list");
        fs::write(list, made.bytes).unwrap();
        Ok(())
    }

    /// Builds the tree like older images.
    fn build(
        &self,
        to: &Path,
        options: &Options,
        like: &[&Path],
        likeness: Likeness,
    ) -> Result<Vec<u8>, Error> {
        let source = SourceOptions::default();
        let from = self.path("tree");
        let source = sources::open(&from, &source, Purpose::Build { latest: None })?;
        let target = Target::create(to, true, None, NO_INPUTS)?;
        let traces: &[Events] =
            if likeness.move_budget == ByteLen::ZERO { &[] } else { &[self.trace()] };
        let build = Build {
            source: source.as_ref(),
            name: "tree",
            traces,
            storage: Storage { kind: StorageKind::Disk, chunk: ByteLen::new(64 << 10) },
            destination: Destination::whole(&target),
            progress: &Unwatched,
        };
        let like: Vec<PathBuf> = like.iter().map(|path| path.to_path_buf()).collect();
        let (place, open) = (Place::default(), OpenOptions::default());
        let format = if matches!(options, Options::Ext(_)) { &EXT } else { &FAT };
        let older = OlderImages::open(format, &like, &place, open)?;
        let of_older = match older.as_ref() {
            None => options.clone(),
            Some(OlderImages::Ext(bases)) => Options::Ext(bases.volume().options()),
            Some(OlderImages::Fat(bases)) => Options::Fat(fat::BuildOptions {
                is_fitted: true,
                ..lossy(bases.volume().options())
            }),
            Some(OlderImages::Ufs(_)) => unreachable!("no test builds UFS images"),
        };
        build.write(&of_older, older.as_ref().map(|older| (older, likeness)))?;
        target.finish()?;
        Ok(fs::read(to).unwrap())
    }
}

fn budget(bytes: u64) -> Likeness {
    Likeness { move_budget: ByteLen::new(bytes), ..Likeness::default() }
}

/// Builds like images and like their lists, several and mixed.
fn successive(seed: u64, most: usize, options: &Options) {
    let mut work = Work::new(seed, most);
    let [first, second, new, other, list, second_list] =
        ["0", "1", "new", "other", "0.layout", "1.layout"].map(|name| work.path(name));
    work.build(&first, options, &[], Likeness::default()).unwrap();
    work.list(&first, &list).unwrap();
    work.change();
    work.build(&second, options, &[&first], Likeness::default()).unwrap();
    work.list(&second, &second_list).unwrap();
    for step in 0..3 {
        work.change();
        for likeness in [Likeness::default(), budget(100_000)] {
            let like = |one: &Path, two: &Path, to: &Path| {
                let bytes = work.build(to, options, &[one, two], likeness);
                bytes.unwrap_or_else(|error| panic!("{seed} {step}: {error}"))
            };
            let bytes = like(&second, &first, &new);
            for (one, two) in [(&second_list, &list), (&second_list, &first), (&second, &list)] {
                assert!(bytes == like(one, two, &other), "{seed} {step} {one:?} {two:?}");
            }
        }
        // The next is like this one.
        fs::rename(&new, &second).unwrap();
        work.list(&second, &second_list).unwrap();
    }
}

#[test]
fn ext_images_are_like_lists() {
    successive(1, 60_000, &ext_options(4096, ext::Features::EXT4));
    successive(2, 60_000, &ext_options(1024, ext::Features::EXT4));
    successive(3, 60_000, &ext_options(1024, ext::Features::EXT2));
    let inline = ext::Features::EXT4.apply("inline_data,^extent,^64bit").unwrap();
    successive(4, 60_000, &ext_options(2048, inline));
}

#[test]
fn fat_images_are_like_lists() {
    successive(5, 4_000, &fat_options(FatWidth::Fat12, 400_000));
    successive(6, 60_000, &fat_options(FatWidth::Fat16, 4 << 20));
    successive(7, 30_000, &fat_options(FatWidth::Fat32, 4 << 20));
}

/// A list that lacks anything a build reads is an error, never zeros.
#[test]
fn a_list_that_lacks_something_is_refused() {
    let mut work = Work::new(11, 20_000);
    let [old, new, list] = ["old", "new", "old.layout"].map(|name| work.path(name));
    let options = ext_options(1024, ext::Features::EXT4);
    work.build(&old, &options, &[], Likeness::default()).unwrap();
    work.list(&old, &list).unwrap();
    work.change();
    let sound = ListParts::decode(&fs::read(&list).unwrap()).unwrap();
    fs::remove_file(&old).unwrap();
    work.build(&new, &options, &[&list], Likeness::default()).unwrap();
    fs::remove_file(&new).unwrap();
    // The list without each of its runs in turn.
    let runs = sound.runs.clone();
    let numbers = numbers(&runs);
    let (mut lacking, mut read) = (0, 0);
    for left_out in 0..numbers.len() / 2 {
        let mut parts = ListParts { runs: Vec::new(), metadata: Vec::new(), ..sound.clone() };
        let (mut gap, mut at) = (0, 0);
        for (number, pair) in numbers.chunks(2).enumerate() {
            let (len, is_zero) = (pair[1] >> 1, pair[1] & 1 == 1);
            let bytes = if is_zero { 0 } else { len as usize * 512 };
            gap += pair[0];
            if number == left_out {
                gap += len;
            } else {
                push(&mut parts.runs, gap);
                push(&mut parts.runs, pair[1]);
                parts.metadata.extend(&sound.metadata[at..at + bytes]);
                gap = 0;
            }
            at += bytes;
        }
        fs::write(&list, parts.encode().unwrap()).unwrap();
        match work.build(&new, &options, &[&list], Likeness::default()) {
            Ok(_) => {
                read += 1;
                fs::remove_file(&new).unwrap();
            }
            Err(error) => {
                lacking += 1;
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                assert!(!new.exists(), "nothing is written");
            }
        }
    }
    // Blocks of directories behind their ends, for example, need not be read.
    assert!(lacking > 0 && read * 3 < lacking, "{lacking} lacking, {read} read");
}

/// The numbers of a list's runs.
fn numbers(bytes: &[u8]) -> Vec<u64> {
    let ends = bytes.split_inclusive(|byte| byte & 0x80 == 0);
    let value = |digits: &[u8]| {
        digits.iter().rev().fold(0u64, |value, digit| value << 7 | u64::from(digit & 0x7F))
    };
    ends.map(value).collect()
}

fn push(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[test]
fn a_list_has_no_contents_and_keeps_no_freed_blocks() {
    let work = Work::new(13, 20_000);
    let [old, new, list] = ["old", "new", "old.layout"].map(|name| work.path(name));
    let options = ext_options(4096, ext::Features::EXT4);
    let secret = b"contents that are in no list".repeat(400);
    fs::write(work.path("tree/d0/secret"), &secret).unwrap();
    work.build(&old, &options, &[], Likeness::default()).unwrap();
    work.list(&old, &list).unwrap();
    let parts = ListParts::decode(&fs::read(&list).unwrap()).unwrap();
    assert!(!parts.metadata.windows(28).any(|bytes| bytes == &secret[..28]));
    assert!(parts.metadata.windows(6).any(|bytes| bytes == b"secret"), "but its name");
    let keep = Likeness { freed: Freed::Keep, ..Likeness::default() };
    let error = work.build(&new, &options, &[&list], keep).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.to_string().contains("old.layout: a layout list has no bytes"), "{error}");
    assert!(!new.exists());
    work.build(&new, &options, &[&old, &list], keep).unwrap();
    // A read of a sector that the list lacks fails.
    let list = seekless_compose::layout_list::LayoutList::parse(&fs::read(&list).unwrap()).unwrap();
    let end = Lba::new(list.device().len().get() / 512 - 1);
    let error = list.device().read(end, &mut [0; 512]).unwrap_err();
    assert!(matches!(error, DeviceError::Lacking { container: "layout list", .. }), "{error}");
}

/// Sizes of lists: `LAYOUT_TREE` names the tree.
#[test]
#[ignore = "a measurement"]
fn sizes() {
    let Some(tree) = std::env::var_os("LAYOUT_TREE") else { return };
    let work = Work::new(17, 100);
    fs::remove_dir_all(work.path("tree")).unwrap();
    std::os::unix::fs::symlink(tree, work.path("tree")).unwrap();
    let (image, list) = (work.path("image"), work.path("list"));
    let kinds = [
        ("ext4", ext_options(4096, ext::Features::EXT4)),
        ("ext4 of 1K", ext_options(1024, ext::Features::EXT4)),
        ("ext2", ext_options(4096, ext::Features::EXT2)),
    ];
    for (name, options) in kinds {
        let len = work.build(&image, &options, &[], Likeness::default()).unwrap().len();
        let start = std::time::Instant::now();
        work.list(&image, &list).unwrap();
        let packed = fs::metadata(&list).unwrap().len();
        let share = packed as f64 * 100.0 / len as f64;
        println!("{name}: {packed} of {len}, {share:.2}%, {:?} for two", start.elapsed());
        let parts = ListParts::decode(&fs::read(&list).unwrap()).unwrap();
        let (runs, metadata) = (parts.runs.len(), parts.metadata.len());
        println!("  runs {runs}, metadata {metadata}, digests {}", parts.digests.len());
    }
}
