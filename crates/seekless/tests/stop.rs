//! Work that is stopped leaves nothing; the files of an image one by one, and its requests.

use seekless::{
    Build, ByteLen, ErrorKind, Format, Kind, Optimize, Progress, Purpose, Stop, Trace, Whiteouts,
    compare, open,
};
use serde_json::json;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Stops the work as soon as its first bytes are written.
struct StopEarly(Stop);

impl Progress for StopEarly {
    fn begin(&self, _total: ByteLen) {}

    fn advance(&self, _bytes: ByteLen) {
        self.0.stop();
    }

    fn reach(&self, _bytes: ByteLen) {
        self.0.stop();
    }

    fn end(&self) {}
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .expect("directory")
        .map(|entry| entry.expect("entry").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

#[test]
fn what_is_stopped_does_not_appear() {
    let work = tempfile::tempdir().expect("directory");
    let at = |name: &str| work.path().join(name);
    fs::create_dir_all(at("source/deep")).expect("tree");
    for n in 0..40 {
        fs::write(at("source/deep").join(n.to_string()), vec![n; 1 << 20]).expect("tree");
    }
    let build = Build::of([at("source")]);
    build.write(at("old.img")).expect("image");
    fs::write(at("there.img"), "kept").expect("file");

    let stop = Stop::new();
    let stopped = build
        .clone()
        .stop(stop.clone())
        .progress(Arc::new(StopEarly(stop.clone())))
        .replace()
        .write(at("there.img"))
        .expect_err("stopped");
    assert!(stop.is_requested());
    assert_eq!(stopped.kind(), ErrorKind::System);
    assert!(stopped.to_string().contains("there.img: stopped before"), "{stopped}");
    assert_eq!(fs::read(at("there.img")).expect("file"), b"kept");

    let stop = Stop::new();
    let stopped = Optimize::of(at("old.img"))
        .trace(Trace::of_paths(["/deep/7"]))
        .stop(stop.clone())
        .progress(Arc::new(StopEarly(stop)))
        .write(at("new.img"))
        .expect_err("stopped");
    assert!(stopped.to_string().contains("new.img: stopped before"), "{stopped}");
    assert_eq!(names(work.path()), ["old.img", "source", "there.img"]);

    // A request that is not made changes nothing.
    build.stop(Stop::new()).write(at("same.img")).expect("image");
    let (old, same) = (open(at("old.img")).expect("image"), open(at("same.img")).expect("image"));
    assert_eq!(compare(&old, &same).expect("two images"), []);
}

/// A container image as `docker save` writes it, of archives of these directories.
fn container(at: &Path, layers: &[&Path]) {
    let run = |program: &str, args: &[&OsStr]| {
        let done = Command::new(program).args(args).output().expect(program);
        assert!(done.status.success(), "{program}: {done:?}");
        String::from_utf8(done.stdout).expect("text")
    };
    let pack = |dir: &Path, at: &Path| {
        run("tar", &["-C".as_ref(), dir.as_ref(), "-cf".as_ref(), at.as_ref(), ".".as_ref()]);
    };
    let dir = tempfile::tempdir().expect("directory");
    let names: Vec<String> = (0..layers.len()).map(|n| format!("{n}.tar")).collect();
    let mut digests = Vec::new();
    for (name, layer) in names.iter().zip(layers) {
        let archive = dir.path().join(name);
        pack(layer, &archive);
        digests.push(format!("sha256:{}", &run("sha256sum", &[archive.as_ref()])[..64]));
    }
    let configuration = json!({ "rootfs": { "type": "layers", "diff_ids": digests } });
    fs::write(dir.path().join("config.json"), configuration.to_string()).expect("file");
    let image = json!([{ "Config": "config.json", "RepoTags": null, "Layers": names }]);
    fs::write(dir.path().join("manifest.json"), image.to_string()).expect("file");
    pack(dir.path(), at);
}

#[test]
fn no_image_of_a_layer_appears_unless_all_do() {
    let work = tempfile::tempdir().expect("directory");
    let at = |name: &str| work.path().join(name);
    for (dir, file) in [("lower", "a"), ("upper", ".wh.a")] {
        fs::create_dir(at(dir)).expect("tree");
        fs::write(at(dir).join(file), "").expect("tree");
        fs::write(at(dir).join("large"), vec![7; 4 << 20]).expect("tree");
    }
    container(&at("image"), &[&at("lower"), &at("upper")]);
    let build = Build::of([at("image")]);
    let refused = |build: Build, kind: ErrorKind, why: &str| {
        let error = build.write_layers(at("none"), Whiteouts::Overlay).expect_err("an error");
        assert!(!at("none").exists(), "{error}");
        assert_eq!((error.kind(), error.to_string().contains(why)), (kind, true), "{error}");
    };
    refused(build.clone().size(64 << 20), ErrorKind::Usage, "a size");
    refused(build.clone().shared(), ErrorKind::Usage, "common places");
    refused(build.clone().format(Format::Fat), ErrorKind::Usage, "FAT has no device nodes");
    refused(build.clone().hard_dereference(), ErrorKind::Usage, "changes to the whole tree");
    refused(Build::of([at("image"), at("lower")]), ErrorKind::Usage, "one source");
    refused(Build::of([at("lower")]), ErrorKind::Usage, "lower");
    let stop = Stop::new();
    let stopped = build.clone().stop(stop.clone()).progress(Arc::new(StopEarly(stop)));
    refused(stopped, ErrorKind::System, "stopped before");

    let layers = build.write_layers(at("images"), Whiteouts::Overlay).expect("images");
    let files: Vec<&str> = layers.iter().map(|layer| layer.file.as_str()).collect();
    assert_eq!(names(&at("images")), [files[0], files[1], "layers.json"]);
    for (layer, kind) in layers.iter().zip([Kind::Regular, Kind::CharDevice]) {
        let path = at("images").join(&layer.file);
        assert_eq!(fs::metadata(&path).expect("image").len(), layer.len);
        assert_eq!(open(&path).expect("image").metadata("/a").expect("file").kind, kind);
    }
}

#[test]
fn an_image_tells_its_files_one_by_one() {
    let work = tempfile::tempdir().expect("directory");
    let (source, path) = (work.path().join("source"), work.path().join("disk.img"));
    fs::create_dir_all(source.join("a/b")).expect("tree");
    fs::create_dir(source.join("c")).expect("tree");
    let contents: Vec<u8> = (0u32..100_000).flat_map(u32::to_le_bytes).collect();
    fs::write(source.join("a/b/large"), &contents).expect("tree");
    fs::write(source.join("a/z"), "").expect("tree");
    std::os::unix::fs::symlink("a/z", source.join("link")).expect("tree");
    Build::of([&source]).write(&path).expect("image");
    let image = open(&path).expect("image");

    let below = |dir: &str| -> Vec<String> {
        let walk = image.walk_below(dir).expect("directory");
        walk.map(|entry| entry.expect("entry").path.to_str().expect("UTF-8").into()).collect()
    };
    assert_eq!(below("/a"), ["a/b", "a/b/large", "a/z"]);
    assert_eq!(below("a/./b/../b/"), ["a/b/large"]);
    let all = image.walk().expect("files");
    let all: Vec<_> = all.iter().filter_map(|entry| entry.path.to_str()).collect();
    assert_eq!(below(""), all);
    assert_eq!(below("/c"), [""; 0]);
    assert_eq!(image.walk_below("a/z").err().map(|it| it.kind()), Some(ErrorKind::System));

    let file = image.file("/a/b/large").expect("file");
    assert_eq!((file.metadata().kind, file.metadata().len), (Kind::Regular, 400_000));
    let mut part = [0; 1000];
    assert_eq!(file.read_at(399_500, &mut part).expect("end"), 500);
    assert_eq!(part[..500], contents[399_500..]);
    assert_eq!(image.file("a").err().map(|it| it.kind()), Some(ErrorKind::Unsupported));
    let missing = image.metadata("a/nothing").expect_err("no file");
    assert_eq!(missing.os_error(), Some(rustix::io::Errno::NOENT.raw_os_error()));

    assert_eq!(image.read_link("link").expect("symlink"), Path::new("a/z"));
    assert_eq!(image.read_link("a").err().map(|it| it.kind()), Some(ErrorKind::Unsupported));

    let trace = Trace::merge([Trace::of_paths(["/a/b/large"]), Trace::of_paths(["/a/z"])]);
    let replay = image.replay(&trace, &[4096]).expect("replay");
    assert_eq!(replay.score, image.score(&trace, &[4096]).expect("score"));
    let data = replay.requests.iter().filter(|request| request.purpose == Purpose::Data);
    let data: Vec<_> = data.collect();
    assert!(data.iter().all(|it| it.path.as_deref() == Some("a/b/large".as_ref())));
    assert_eq!(data.iter().map(|it| it.len).sum::<u64>(), 401_408);
    // The bytes of the image at a request are those of the file.
    let bytes = fs::read(&path).expect("image");
    let at = usize::try_from(data[0].offset).expect("small");
    let within = usize::try_from(data[0].file_offset).expect("small");
    assert_eq!(bytes[at..at + 4096], contents[within..within + 4096]);
}
