//! `compare`, and `score --cached`: chunks that are counted here byte by byte, and by casync.

use super::skip::skip;
use super::{browser, json, seekless, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

/// Different chunks, and their bytes.
type Counted = (u64, u64);

/// Bytes that do not repeat.
fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed * 2 + 1;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// A tree with files of many lengths, large ones among them, and equal ones.
fn tree(at: &Path) {
    for dir in 0..6 {
        let sub = at.join(format!("dir{dir:02}"));
        fs::create_dir_all(&sub).unwrap();
        for file in 0..20 {
            let number = dir * 20 + file;
            let len = [900, 5_000, 70_000, 200_000][file as usize % 4] + number as usize * 7;
            fs::write(sub.join(format!("file{file:02}")), random(number % 100, len)).unwrap();
        }
    }
    // A hole of many chunks, and contents of one byte.
    let zeros = fs::File::create(at.join("zeros")).unwrap();
    zeros.set_len(3 << 20).unwrap();
    fs::write(at.join("ones"), vec![1; 2_500_000]).unwrap();
}

/// Three images: `a.img`; `b.img` with a file more and one that grew; `c.img` without some.
fn prepare(dir: &Path, format: &str) {
    let source = dir.join("tree");
    tree(&source);
    let build = |name: &str| {
        let args = ["build", "tree", "-o", name, "--format", format, "-q"];
        text(&args, dir);
    };
    build("a.img");
    fs::create_dir(source.join("cc")).unwrap();
    fs::write(source.join("cc/new"), random(900, 300_000)).unwrap();
    let mut grown = fs::read(source.join("dir03/file02")).unwrap();
    grown.extend(random(901, 5_000));
    fs::write(source.join("dir03/file02"), grown).unwrap();
    build("b.img");
    fs::remove_dir_all(source.join("dir05")).unwrap();
    // New contents that repeat, a block further.
    fs::create_dir(source.join("dd")).unwrap();
    let twice = random(903, 40_960);
    fs::write(source.join("dd/one"), &twice).unwrap();
    fs::write(source.join("dd/two"), &twice[4096..]).unwrap();
    build("c.img");
    let paths = (0..6).map(|dir| format!("/dir{dir:02}/file03\n")).collect::<String>();
    fs::write(dir.join("paths"), paths + "/cc/new\n").unwrap();
    text(&["trace", "import", "--paths", "paths", "-o", "job.trace"], dir);
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// The different chunks of an image, by their bytes.
fn chunks(image: &[u8], size: usize) -> HashSet<&[u8]> {
    image.chunks(size).filter(|chunk| !is_zero(chunk)).collect()
}

fn counted<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Counted {
    chunks.fold((0, 0), |(count, bytes), chunk| (count + 1, bytes + chunk.len() as u64))
}

fn count(value: &Value) -> Counted {
    (value["chunks"].as_u64().unwrap(), value["bytes"].as_u64().unwrap())
}

#[test]
fn aligned_chunks_are_those_of_the_bytes() {
    for format in ["ext4", "ufs2", "fat32"] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        prepare(dir, format);
        let names = ["a.img", "b.img", "c.img"];
        let sizes = ["--chunk", "64K", "--chunk", "512K"];
        let found = json(&[&["compare", "--json"][..], &sizes, &names].concat(), dir);
        let images = names.map(|name| fs::read(dir.join(name)).unwrap());
        for (at, size) in [4 << 10, 64 << 10, 512 << 10].into_iter().enumerate() {
            let unit = &found["units"][at];
            assert_eq!(unit["size"], size as u64);
            let sets: Vec<HashSet<&[u8]>> = images.iter().map(|it| chunks(it, size)).collect();
            let mut before: HashSet<&[u8]> = HashSet::new();
            for (n, set) in sets.iter().enumerate() {
                let of = &unit["images"][n];
                assert_eq!(count(&of["all"]), counted(set.iter().copied()), "{format} {size}");
                let new = set.difference(&before).copied();
                assert_eq!(count(&of["new"]), counted(new), "{format}: {size}, image {n}");
                before.extend(set);
                for (m, other) in sets.iter().enumerate() {
                    let shared = set.intersection(other).count();
                    assert_eq!(unit["shared"][n][m], shared as u64, "{format}: {size}, {n} {m}");
                }
            }
        }
        by_use(&found, &images, format);
    }
}

/// Each byte of the new chunks of the last image, except those of zeros, has a use.
fn by_use(found: &Value, images: &[Vec<u8>; 3], format: &str) {
    let [a, b, c] = images;
    let blocks: HashSet<&[u8]> = [a, b].iter().flat_map(|image| chunks(image, 4096)).collect();
    for last in found["last"].as_array().unwrap() {
        let size = last["size"].as_u64().unwrap() as usize;
        let before: HashSet<&[u8]> = [a, b].iter().flat_map(|image| chunks(image, size)).collect();
        let new: HashSet<&[u8]> = chunks(c, size).difference(&before).copied().collect();
        let causes: u64 =
            last["causes"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        assert_eq!(causes, new.len() as u64, "each new chunk has a cause");
        let sum = |key: &str| -> u64 {
            last["by_use"].as_object().unwrap().values().filter_map(|it| it[key].as_u64()).sum()
        };
        let parts = new.iter().flat_map(|chunk| chunk.chunks(4096)).filter(|it| !is_zero(it));
        let moved = parts.clone().filter(|it| blocks.contains(it));
        assert_eq!(sum("moved"), moved.map(|it| it.len() as u64).sum::<u64>());
        let fresh: HashSet<&[u8]> = parts.filter(|it| !blocks.contains(it)).collect();
        assert_eq!(sum("new"), fresh.iter().map(|it| it.len() as u64).sum::<u64>());
        // Only ext4 keeps files on blocks of 4K, so that blocks that move stay equal.
        let contents = last["by_use"]["contents of files"]["new"].as_u64().unwrap();
        assert!(contents < 4096 * 20 || format != "ext4", "40,960 bytes were added: {contents}");
        assert!(last["by_use"]["directories"].is_object(), "{last}");
    }
}

/// The chunks of casync's index of an image: their identifiers and lengths, without zeros.
fn casync(image: &str, dir: &Path) -> BTreeMap<[u8; 32], u64> {
    let index = format!("{image}.caibx");
    let store = format!("{image}.store");
    let made = Command::new("casync")
        .args(["make", "--chunk-size=16384:65536:262144", "--store", &store, &index, image])
        .current_dir(dir)
        .output()
        .expect("casync");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let (index, image) = (fs::read(dir.join(index)).unwrap(), fs::read(dir.join(image)).unwrap());
    // Two heads, of 48 and 16 bytes; then the end and the identifier of each chunk; then a tail.
    let mut chunks = BTreeMap::new();
    let mut start = 0;
    for entry in index[64..].chunks_exact(40) {
        let end = u64::from_le_bytes(entry[..8].try_into().unwrap());
        if end == 0 {
            break;
        }
        if !is_zero(&image[start as usize..end as usize]) {
            chunks.insert(entry[8..].try_into().unwrap(), end - start);
        }
        start = end;
    }
    assert_eq!(start, image.len() as u64, "the index covers the image");
    chunks
}

/// Contents of which chunks end at the least size, one byte in front of it or behind it, within
/// zeros, and at the largest size.
fn edges() -> Vec<u8> {
    // Bytes behind which casync's hash ends a chunk.
    let last: [u8; 48] = [
        122, 162, 161, 174, 40, 203, 20, 190, 239, 99, 176, 162, 124, 147, 50, 93, 111, 182, 179,
        112, 125, 93, 50, 111, 158, 57, 163, 220, 139, 159, 94, 95, 222, 6, 248, 112, 242, 229,
        160, 67, 99, 128, 222, 203, 2, 20, 182, 114,
    ];
    let mut bytes = Vec::new();
    for (seed, len) in [16_384, 16_383, 16_385, 16_384, 50_000].into_iter().enumerate() {
        bytes.extend(random(seed as u64 + 50, len - 48));
        bytes.extend(last);
    }
    bytes.extend(vec![0; 700_000]);
    bytes.extend(random(60, 16_384));
    bytes.extend(last);
    bytes.extend(vec![1; 600_001]);
    bytes
}

#[test]
fn content_defined_chunks_are_casyncs() {
    if Command::new("casync").arg("--version").output().is_err() {
        return skip("casync is not installed");
    }
    for format in ["ext4", "ufs1", "fat16"] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        prepare(dir, format);
        fs::write(dir.join("edges"), edges()).unwrap();
        let args = ["compare", "--json", "edges", "b.img"];
        let found = json(&args, dir);
        let unit = found["units"].as_array().unwrap().last().unwrap();
        let edges = casync("edges", dir);
        let sum_of =
            |chunks: &BTreeMap<[u8; 32], u64>| (chunks.len() as u64, chunks.values().sum());
        assert_eq!(count(&unit["images"][0]["all"]), sum_of(&edges), "ends at the least size");
        let found = json(&["compare", "--json", "a.img", "b.img"], dir);
        let unit = found["units"].as_array().unwrap().last().unwrap();
        assert_eq!(unit["kind"], "content-defined");
        let [a, b] = ["a.img", "b.img"].map(|image| casync(image, dir));
        assert_eq!(count(&unit["images"][0]["all"]), sum_of(&a), "{format}");
        assert_eq!(count(&unit["images"][1]["all"]), sum_of(&b), "{format}");
        let new = b.into_iter().filter(|(id, _)| !a.contains_key(id)).collect();
        assert_eq!(count(&unit["images"][1]["new"]), sum_of(&new), "{format}");
    }
}

/// The ranges of bytes that requests read, by the log of `score`.
fn requests(image: &str, dir: &Path) -> Vec<Range<usize>> {
    text(&["score", image, "--trace", "job.trace", "--io-log", "io.jsonl"], dir);
    let log = fs::read_to_string(dir.join("io.jsonl")).unwrap();
    let range = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap();
        let of = |key: &str| value[key].as_u64().unwrap_or_else(|| panic!("{line}")) as usize;
        of("offset")..of("offset") + of("bytes")
    };
    log.lines().map(range).collect()
}

#[test]
fn chunks_that_a_cache_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir, "ext4");
    let [a, b] = ["a.img", "b.img"].map(|name| fs::read(dir.join(name)).unwrap());
    let ranges = requests("b.img", dir);
    let args = ["--trace", "job.trace", "--chunk", "64K", "--chunk", "512K"];
    let compared = json(&[&["compare", "--json", "a.img", "b.img"][..], &args].concat(), dir);
    let scored =
        json(&[&["score", "--json", "b.img", "--cached", "a.img"][..], &args].concat(), dir);
    for (at, size) in [64 << 10, 512 << 10].into_iter().enumerate() {
        let numbers: BTreeSet<usize> =
            ranges.iter().flat_map(|it| it.start / size..=(it.end - 1) / size).collect();
        let read: HashSet<&[u8]> =
            numbers.iter().filter_map(|&it| b.chunks(size).nth(it)).collect();
        let read: HashSet<&[u8]> = read.into_iter().filter(|it| !is_zero(it)).collect();
        let missing = read.difference(&chunks(&a, size)).count() as u64;
        let trace = &compared["last"][at]["trace"];
        assert_eq!(trace["chunks"], read.len() as u64, "chunks of {size}");
        assert_eq!(trace["missing"], missing, "chunks of {size}");
        assert_eq!(scored["chunks_not_cached"][size.to_string()], missing, "chunks of {size}");
        assert!(missing > 0 && missing <= scored["chunks"][size.to_string()].as_u64().unwrap());
    }
    let own = json(&["score", "--json", "b.img", "--cached", "b.img", "--trace", "job.trace"], dir);
    let own = own["chunks_not_cached"].as_object().unwrap();
    assert!(own.len() == 3 && own.values().all(|it| it == 0), "{own:?}");
}

/// A disk of `len` bytes without data, which hosts can have whose files are shorter: a header of
/// version 2, and a first table that has an entry for each 512 GiB.
fn empty_qcow2(len: u64) -> Vec<u8> {
    let mut bytes = b"QFI\xfb\0\0\0\x02".to_vec();
    bytes.resize(20, 0);
    bytes.extend(21u32.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(u32::try_from(len.div_ceil(1 << 39)).unwrap().to_be_bytes());
    for table in [1u64 << 21, 2 << 21] {
        bytes.extend(table.to_be_bytes());
    }
    bytes.extend(1u32.to_be_bytes());
    bytes.resize(3 << 21, 0);
    bytes
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir, "ext4");
    fs::write(dir.join("text"), "no image\n".repeat(9_000)).unwrap();
    let mut harmed = fs::read(dir.join("a.img")).unwrap();
    // Inodes in a group.
    harmed[1024 + 40..1024 + 44].fill(0);
    fs::write(dir.join("harmed.img"), harmed).unwrap();
    for (args, code, said) in [
        (&["a.img"][..], 2, "required"),
        (&["a.img", "b.img", "--chunk", "5000"], 2, "multiple of 4096"),
        (&["a.img", "b.img", "--chunk", "0"], 2, "chunk"),
        (&["a.img", "text"], 4, "text"),
        (&["a.img", "harmed.img"], 3, "harmed.img"),
        (&["a.img", "missing.img"], 6, "missing.img"),
        (&["missing.img", "a.img"], 6, "missing.img"),
        (&["a.img", "."], 2, "directory"),
    ] {
        let done = seekless(&[&["compare"], args].concat(), dir);
        let message = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(code), "{args:?}: {message}");
        assert!(message.contains(said), "{args:?}: {message}");
        assert!(done.stdout.is_empty(), "{args:?}");
    }
    fs::write(dir.join("huge"), empty_qcow2(17 << 40)).unwrap();
    let done = seekless(&["compare", "huge", "a.img"], dir);
    assert_eq!(done.status.code(), Some(4), "{done:?}");
    // An older image need be no file system: it is bytes.
    text(&["compare", "text", "a.img"], dir);
}

#[test]
fn the_text_has_the_figures_of_json() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir, "ext4");
    let args = ["compare", "a.img", "b.img", "--chunk", "512K", "--trace", "job.trace"];
    let (said, found) = (text(&args, dir), json(&[&args[..], &["--json"]].concat(), dir));
    let row = |label: &str| {
        let line = said.lines().find(|line| line.starts_with(label));
        line.unwrap_or_else(|| panic!("{label}:\n{said}")).to_string()
    };
    let chunks = &found["units"][1]["images"];
    for image in 0..2 {
        let all = count(&chunks[image]["all"]).0.to_string();
        assert!(row("chunks of 512K").contains(&all), "{said}");
    }
    let last = &found["last"][0];
    let moved = last["causes"]["only because blocks moved"].as_u64().unwrap();
    assert!(row("only because blocks moved").ends_with(&format!(" {moved}")), "{said}");
    let trace = &last["trace"];
    let counts = format!(
        "The trace reads {} chunks of 512K, of which no image before has {}.",
        trace["chunks"], trace["missing"]
    );
    assert!(said.contains(&counts), "{counts}\n{said}");
    // A cell for each chunk, dark where it is new.
    let strip = said.lines().find(|line| line.starts_with(['█', '·'])).expect("a strip");
    let new = count(&chunks[1]["new"]).0 as usize;
    assert!(strip.chars().filter(|&cell| cell == '█').count() >= new, "{strip}");
    assert!(!said.contains("that another has"), "{said}");
    let said = text(&["compare", "a.img", "b.img", "c.img"], dir);
    assert_eq!(said.matches("that another has").count(), 5, "{said}");
    let done = seekless(&["compare", "a.img", "b.img", "--trace", "other.trace"], dir);
    assert_eq!(done.status.code(), Some(6), "{done:?}");
    fs::write(dir.join("others"), "/of/another/image\n").unwrap();
    text(&["trace", "import", "--paths", "others", "-o", "other.trace"], dir);
    let done = seekless(&["compare", "a.img", "b.img", "--trace", "other.trace"], dir);
    assert!(String::from_utf8_lossy(&done.stderr).contains("another image"), "{done:?}");
}

#[test]
fn chunks_begin_at_the_file_system() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir, "ext4");
    let plain = json(&["compare", "--json", "a.img", "b.img"], dir);
    for name in ["a", "b"] {
        let image = fs::read(dir.join(format!("{name}.img"))).unwrap();
        let mut disk = random(7, 1 << 20);
        disk.extend(image);
        fs::write(dir.join(format!("{name}.disk")), disk).unwrap();
    }
    let behind = json(&["compare", "--json", "a.disk", "b.disk", "--offset", "1M"], dir);
    assert_eq!(behind["units"], plain["units"]);
    assert_eq!(behind["last"], plain["last"]);
    // Bytes behind the file system, and a length that is no multiple of a block.
    let mut longer = fs::read(dir.join("b.img")).unwrap();
    longer.extend(random(8, 5000));
    fs::write(dir.join("longer.img"), longer).unwrap();
    let longer = json(&["compare", "--json", "b.img", "longer.img", "--chunk", "64K"], dir);
    let last = &longer["last"][0];
    assert_eq!(last["by_use"]["outside the file system"]["new"], 5000, "{last}");
    assert_eq!(last["causes"]["because of metadata"], 1, "{last}");
}

/// The page has each chunk of the last image with its cause, a text for each map, and the tables; it
/// needs nothing from elsewhere.
#[test]
fn the_page_has_each_chunk_with_its_cause() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir, "ext4");
    let args = ["compare", "a.img", "b.img", "--chunk", "64K", "--chunk", "512K"];
    let said = text(&[&args[..], &["--html", "map.html"]].concat(), dir);
    assert!(said.starts_with("map.html: "), "{said}");
    let found = json(&[&args[..], &["--json"]].concat(), dir);
    let page = fs::read_to_string(dir.join("map.html")).unwrap();
    assert!(!page.contains("http"), "something from outside");
    assert_eq!(page.matches("role=\"img\"").count(), 2);
    let (_, data) = page.split_once("id=\"data\">").expect("data");
    let (data, _) = data.split_once("</script>").expect("its end");
    let data: Value = serde_json::from_str(data).unwrap();
    let len = fs::metadata(dir.join("b.img")).unwrap().len();
    for (map, last) in
        data["maps"].as_array().unwrap().iter().zip(found["last"].as_array().unwrap())
    {
        let size = last["size"].as_u64().unwrap();
        assert_eq!(map["size"].as_u64(), Some(size));
        let mut letters = String::new();
        let mut count = 0;
        for letter in map["cells"].as_str().unwrap().chars() {
            match letter.to_digit(10) {
                Some(digit) => count = count * 10 + digit as usize,
                None => {
                    letters.extend(std::iter::repeat_n(letter, count.max(1)));
                    count = 0;
                }
            }
        }
        assert_eq!(letters.len() as u64, len.div_ceil(size));
        // Equal chunks are counted once, and all of them are drawn.
        let pairs = [
            ("c", "because of new contents"),
            ("d", "because of metadata"),
            ("m", "only because blocks moved"),
        ];
        for (letter, cause) in pairs {
            let drawn = letters.matches(letter).count() as u64;
            let counted = last["causes"][cause].as_u64().unwrap_or(0);
            assert!(
                drawn >= counted && (drawn > 0) == (counted > 0),
                "{cause}: {drawn}, {counted}"
            );
        }
    }
    let keys = "<script>const picture = document.getElementById(\"map-0\");\n\
        for (const key of [\"ArrowRight\", \"ArrowRight\"])\n\
        picture.dispatchEvent(new KeyboardEvent(\"keydown\", { key }));\n\
        picture.after(document.getElementById(\"tip\").cloneNode(true));\n</script></body>";
    fs::write(dir.join("map.html"), page.replace("</body>", keys)).unwrap();
    let Some(dom) = browser(dir, &["--dump-dom"]) else { return };
    let dom = String::from_utf8(dom.stdout).unwrap();
    assert!(dom.contains(">chunk 1, 64K to 128K: "), "no chunk is told of in\n{dom}");
}
