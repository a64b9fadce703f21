//! A file system as maps in memory.

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    File(Vec<u8>),
    Dir(BTreeMap<Vec<u8>, usize>),
    Link(Vec<u8>),
    Other,
}

#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) body: Body,
    pub(crate) perm: u16,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) names: u32,
    pub(crate) parent: usize,
}

/// Files by number; 0 is the root.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) files: BTreeMap<usize, File>,
    next: usize,
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum No {
    Exists,
    NotFound,
    NotEmpty,
    IsDirectory,
    NotDirectory,
    Invalid,
    NotPermitted,
}

impl Model {
    pub(crate) fn new() -> Self {
        let root = File {
            body: Body::Dir(BTreeMap::new()),
            perm: 0o755,
            xattrs: BTreeMap::new(),
            names: 1,
            parent: 0,
        };
        Self { files: BTreeMap::from([(0, root)]), next: 1 }
    }

    pub(crate) fn dir(&self, file: usize) -> &BTreeMap<Vec<u8>, usize> {
        match &self.files[&file].body {
            Body::Dir(names) => names,
            _ => panic!("{file} is no directory"),
        }
    }

    fn dir_mut(&mut self, file: usize) -> &mut BTreeMap<Vec<u8>, usize> {
        match &mut self.files.get_mut(&file).unwrap().body {
            Body::Dir(names) => names,
            _ => panic!("{file} is no directory"),
        }
    }

    pub(crate) fn is_dir(&self, file: usize) -> bool {
        matches!(self.files[&file].body, Body::Dir(_))
    }

    pub(crate) fn dirs(&self) -> Vec<usize> {
        self.files.keys().copied().filter(|&file| self.is_dir(file)).collect()
    }

    /// Links as `stat` counts them.
    pub(crate) fn links(&self, file: usize) -> u32 {
        if !self.is_dir(file) {
            return self.files[&file].names;
        }
        2 + self.dir(file).values().filter(|&&child| self.is_dir(child)).count() as u32
    }

    pub(crate) fn make(&mut self, dir: usize, name: &[u8], body: Body) -> Result<usize, No> {
        if self.dir(dir).contains_key(name) {
            return Err(No::Exists);
        }
        let file = self.next;
        self.next += 1;
        let made = File { body, perm: 0o644, xattrs: BTreeMap::new(), names: 1, parent: dir };
        self.files.insert(file, made);
        self.dir_mut(dir).insert(name.to_vec(), file);
        Ok(file)
    }

    pub(crate) fn link(&mut self, file: usize, dir: usize, name: &[u8]) -> Result<(), No> {
        if self.is_dir(file) {
            return Err(No::NotPermitted);
        }
        if self.dir(dir).contains_key(name) {
            return Err(No::Exists);
        }
        self.dir_mut(dir).insert(name.to_vec(), file);
        self.files.get_mut(&file).unwrap().names += 1;
        Ok(())
    }

    fn drop_name(&mut self, file: usize) {
        let entry = self.files.get_mut(&file).unwrap();
        entry.names -= 1;
        if entry.names == 0 {
            self.files.remove(&file);
        }
    }

    pub(crate) fn unlink(&mut self, dir: usize, name: &[u8]) -> Result<(), No> {
        let file = *self.dir(dir).get(name).ok_or(No::NotFound)?;
        if self.is_dir(file) {
            return Err(No::IsDirectory);
        }
        self.dir_mut(dir).remove(name);
        self.drop_name(file);
        Ok(())
    }

    pub(crate) fn rmdir(&mut self, dir: usize, name: &[u8]) -> Result<(), No> {
        let file = *self.dir(dir).get(name).ok_or(No::NotFound)?;
        if !self.is_dir(file) {
            return Err(No::NotDirectory);
        }
        if !self.dir(file).is_empty() {
            return Err(No::NotEmpty);
        }
        self.dir_mut(dir).remove(name);
        self.drop_name(file);
        Ok(())
    }

    fn lies_below(&self, mut dir: usize, above: usize) -> bool {
        loop {
            if dir == above {
                return true;
            }
            if dir == 0 {
                return false;
            }
            dir = self.files[&dir].parent;
        }
    }

    pub(crate) fn rename(
        &mut self,
        from: (usize, &[u8]),
        to: (usize, &[u8]),
        exchange: bool,
    ) -> Result<(), No> {
        let file = *self.dir(from.0).get(from.1).ok_or(No::NotFound)?;
        let target = self.dir(to.0).get(to.1).copied();
        if exchange && target.is_none() {
            return Err(No::NotFound);
        }
        if target == Some(file) {
            return Ok(());
        }
        if self.is_dir(file) && self.lies_below(to.0, file) {
            return Err(No::Invalid);
        }
        if let Some(target) = target {
            if exchange {
                if self.is_dir(target) && self.lies_below(from.0, target) {
                    return Err(No::Invalid);
                }
                self.dir_mut(from.0).insert(from.1.to_vec(), target);
                self.files.get_mut(&target).unwrap().parent = from.0;
            } else {
                match (self.is_dir(file), self.is_dir(target)) {
                    (true, false) => return Err(No::NotDirectory),
                    (false, true) => return Err(No::IsDirectory),
                    (true, true) if !self.dir(target).is_empty() => return Err(No::NotEmpty),
                    _ => {}
                }
                self.drop_name(target);
            }
        }
        if !exchange {
            self.dir_mut(from.0).remove(from.1);
        }
        self.dir_mut(to.0).insert(to.1.to_vec(), file);
        self.files.get_mut(&file).unwrap().parent = to.0;
        Ok(())
    }
}
