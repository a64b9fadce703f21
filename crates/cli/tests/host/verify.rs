use crate::judges::{Scratch, command, text};
use crate::{can_trace, capable, machine, mke2fs, traces_of_us};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

pub(crate) fn write_trace(path: &Path, events: &[Value]) {
    let mut out = File::create(path).unwrap();
    writeln!(out, "{{\"seekless_trace\":1}}").unwrap();
    events.iter().for_each(|event| writeln!(out, "{event}").unwrap());
}

pub(crate) fn make_tree(dir: &Path) -> Vec<String> {
    let mut paths = Vec::new();
    for at in 0..4000usize {
        let sub = format!("d{}/e{}", at % 40, at % 7);
        fs::create_dir_all(dir.join(&sub)).unwrap();
        let path = format!("{sub}/f{at}");
        fs::write(dir.join(&path), vec![at as u8; at * 131 % 20_000]).unwrap();
        paths.push(format!("/{path}"));
    }
    paths
}

/// Small files read in random order, and a walk that stats every file.
fn workloads(paths: &[String]) -> Vec<(&'static str, Vec<Value>)> {
    let random = (0..800).map(|at| &paths[at * 2741 % paths.len()]);
    let read = random
        .flat_map(|path| {
            [
                json!({"op": "open", "path": path, "pid": 1}),
                json!({"op": "read", "path": path, "pid": 1}),
            ]
        })
        .collect();
    let mut walk = vec![json!({"op": "readdir", "path": "/"})];
    let mut sorted = paths.to_vec();
    sorted.sort();
    let mut last = String::new();
    for path in &sorted {
        let dir = path.rsplit_once('/').unwrap().0;
        if dir != last {
            walk.push(json!({"op": "readdir", "path": dir}));
            last = dir.into();
        }
        walk.push(json!({"op": "stat", "path": path}));
    }
    // Reads of the device between those of files; some of its pages contain metadata.
    let device = (0..120).flat_map(|at| {
        let (offset, path) = (at * 1_048_576 % (128 << 20), &paths[at * 37 % paths.len()]);
        [
            json!({"op": "device", "path": "/", "offset": offset, "length": 4096 << (at % 4)}),
            json!({"op": "read", "path": path, "pid": 1}),
        ]
    });
    let device = device.collect();
    vec![("random reads", read), ("stat walk", walk), ("reads of the device", device)]
}

#[test]
fn the_prediction_is_what_the_kernel_does() {
    let _machine = machine();
    if !(capable() && can_trace()) {
        return;
    }
    let scratch = Scratch::on_disk("verify");
    let tree = scratch.path().join("tree");
    let paths = make_tree(&tree);
    let made = scratch.path().join("made");
    mke2fs(&tree, &made, "128M");
    for (name, events) in workloads(&paths) {
        let trace = scratch.path().join("trace");
        write_trace(&trace, &events);
        let trace = trace.to_str().unwrap();
        let optimized = scratch.join("optimized");
        let made = made.to_str().unwrap();
        text(
            &command(&["optimize", made, "--trace", trace, "-o", &optimized, "--force"])
                .output()
                .unwrap(),
        );
        for image in [made, &optimized] {
            let args = ["score", image, "--trace", trace, "--verify-kernel", "--json"];
            let output = command(&args).output().unwrap();
            let found = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                output.status.success(),
                "{name} on {image}: {found}{}",
                String::from_utf8_lossy(&output.stderr)
            );
            let found: Value = serde_json::from_str(&found).unwrap();
            assert_eq!(found["within"], true, "{found}");
            assert!(found["kernel"]["requests"].as_u64().unwrap() > 50, "{found}");
        }
    }
    assert!(traces_of_us("seekless-verify-").is_empty());
}

#[test]
fn a_bad_prediction_and_missing_files_are_told() {
    let _machine = machine();
    if !(capable() && can_trace()) {
        return;
    }
    let scratch = Scratch::on_disk("verify-bad");
    let (tree, image, trace) =
        (scratch.path().join("tree"), scratch.path().join("image"), scratch.path().join("trace"));
    let paths = make_tree(&tree);
    mke2fs(&tree, &image, "128M");
    let mut events: Vec<Value> =
        paths.iter().step_by(9).map(|path| json!({"op": "read", "path": path})).collect();
    events.push(json!({"op": "read", "path": "/no/such/file"}));
    write_trace(&trace, &events);
    let args = ["--verify-kernel", "--json", "--tolerance", "0.0001"];
    let mut command = command(&["score".as_ref(), image.as_os_str()]);
    let output = command.arg("--trace").arg(&trace).args(args).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["missing"], json!(["/no/such/file"]));
    assert_eq!(found["failed"], 1);
    let within = found["within"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!within)), "{found}");
}
