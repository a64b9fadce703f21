//! `peers arcbox TAR IMG BYTES`: an ext4 image of that size from a tar by the arcbox-ext4 crate,
//! which has no command of its own.

use arcbox_ext4::Formatter;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["arcbox", tar, image, bytes] => {
            let mut formatter = Formatter::new(Path::new(image), 4096, bytes.parse()?)?;
            formatter.unpack_tar(BufReader::with_capacity(1 << 20, File::open(tar)?))?;
            formatter.close()?;
            Ok(())
        }
        _ => Err("usage: peers arcbox TAR IMG BYTES".into()),
    }
}
