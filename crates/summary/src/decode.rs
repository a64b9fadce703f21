//! Limits for the decoders of Parquet. They panic on some contents, and allocate as much as a page
//! says that it contains: a checksum protects against damage, not against a file that was made to do harm.

use crate::SummaryError;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::thread;

thread_local! {
    /// Whether the thread runs a decoder.
    static DECODES: Cell<bool> = const { Cell::new(false) };
}

/// Runs a decoder, and returns an error if it panics. The decoder must not be used again then. The
/// panic hook of the process does not report it: the caller does.
pub(crate) fn guarded<T>(
    decode: impl FnOnce() -> std::result::Result<T, SummaryError>,
) -> std::result::Result<T, SummaryError> {
    leave_to_errors();
    let outer = DECODES.replace(true);
    let done = catch_unwind(AssertUnwindSafe(decode));
    DECODES.set(outer);
    done.unwrap_or(Err(SummaryError::Corrupt("its data cannot be decoded")))
}

/// Puts a hook in front of the process's panic hook that passes over panics of decoders, and leaves
/// all others to it. A hook that the program sets later replaces both.
fn leave_to_errors() {
    static DONE: Once = Once::new();
    // Where a panic ends the process, it is not returned, and has to be reported. A hook cannot be
    // set while the thread panics.
    if cfg!(panic = "abort") || thread::panicking() {
        return;
    }
    DONE.call_once(|| {
        let report = take_hook();
        set_hook(Box::new(move |panic| {
            if !DECODES.get() {
                report(panic);
            }
        }));
    });
}

/// Pages of a column, none of which claims more values than a part has rows.
pub(crate) struct Bounded {
    pub(crate) pages: Box<dyn PageReader>,
    pub(crate) most: usize,
}

impl PageReader for Bounded {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        let values = page.as_ref().map_or(0, Page::num_values);
        if usize::try_from(values).is_ok_and(|values| values <= self.most) {
            return Ok(page);
        }
        Err(ParquetError::General("a page has more values than its part has rows".into()))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }
}

impl Iterator for Bounded {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::basic::Encoding;

    struct One(Option<Page>);

    impl Iterator for One {
        type Item = Result<Page>;

        fn next(&mut self) -> Option<Self::Item> {
            self.get_next_page().transpose()
        }
    }

    impl PageReader for One {
        fn get_next_page(&mut self) -> Result<Option<Page>> {
            Ok(self.0.take())
        }

        fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
            Ok(None)
        }

        fn skip_next_page(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_page_that_claims_too_many_values_is_refused() {
        let with = |num_values| {
            let encoding = Encoding::PLAIN;
            let buf = Vec::new().into();
            let page = Page::DictionaryPage { buf, num_values, encoding, is_sorted: false };
            Bounded { pages: Box::new(One(Some(page))), most: 16 }.get_next_page()
        };
        assert!(with(16).is_ok_and(|page| page.is_some()));
        assert!(with(17).is_err() && with(u32::MAX).is_err());
    }

    #[test]
    fn a_panic_becomes_an_error() {
        let done: std::result::Result<(), _> = guarded(|| {
            assert!(DECODES.get());
            panic!("as a decoder does");
        });
        assert!(matches!(done, Err(SummaryError::Corrupt(_))) && !DECODES.get());
    }
}
