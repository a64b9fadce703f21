//! The kernel mounts volumes that were cut off in use, and recovers them; what it
//! leaves behind is written to again.

use super::volume::{SHAPES, Volume, make, run};
use crate::holes;
use crate::repair::judge::{Scratch, findings, is_there};
use crate::skip::skip;
use crate::unmount::unmount;
use seekless_device::{BlockDevice, MemoryDevice};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Mounts an image for as long as something takes.
fn mounted<T>(image: &str, at: &Scratch, options: &str, then: impl FnOnce() -> T) -> T {
    fs::create_dir_all(at.path()).expect("mount point");
    let path = at.path().to_str().expect("path");
    run("mount", &["-t", "ext4", "-o", options, image, path]);
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(then));
    unmount(at.path(), Path::new(image));
    done.unwrap_or_else(|why| std::panic::resume_unwind(why))
}

#[test]
fn the_kernel_recovers_what_was_committed() {
    if !is_there() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skip("only root mounts images");
    }
    for (seed, shape) in SHAPES.iter().enumerate() {
        let (bytes, homes) = make(shape);
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(bytes));
        let mut volume = Volume::open(shape, device, homes.clone(), seed as u64);
        for round in 0..40 {
            volume.commit([3, 100][round % 2]);
        }
        let scratch = Scratch::new(&format!("kernel-{}", shape.name));
        let at = Scratch::new(&format!("mount-{}", shape.name));
        let image = scratch.path().to_str().expect("path");
        fs::write(scratch.path(), volume.bytes()).expect("image");
        mounted(image, &at, "loop,noatime", || {
            let found = fs::read(at.path().join("file")).expect("file");
            assert!(found == volume.file(), "{}", shape.name);
            fs::write(at.path().join("new"), "by the kernel").expect("new");
        });
        assert_eq!(findings(scratch.path()), None, "{}", shape.name);
        // Its numbers go on where ours ended, and ours where its ended.
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(holes::take(scratch.path())));
        let before = volume.log.next_tid();
        let mut again = Volume::open(shape, device, homes, seed as u64);
        assert!(again.log.next_tid() > before, "{}", shape.name);
        (again.committed, again.random) = (volume.committed, volume.random);
        again.commit(50);
        fs::write(scratch.path(), again.bytes()).expect("image");
        mounted(image, &at, "loop,noatime", || {
            let found = fs::read(at.path().join("file")).expect("file");
            assert!(found == again.file(), "{} again", shape.name);
        });
        assert_eq!(findings(scratch.path()), None, "{} again", shape.name);
    }
}
