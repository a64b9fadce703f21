//! Merges of more inputs than can be read side by side.

/// Inputs that wait to be merged, in their order, a few at a time. Sums are merged when there are
/// enough of equal size. An input is therefore read a logarithmic number of times, and few sums wait:
/// each is an open file.
#[derive(Debug)]
pub struct Steps<T> {
    most: usize,
    /// Inputs and sums, each with the number of merges that it went through.
    waiting: Vec<(u32, T)>,
}

impl<T> Steps<T> {
    /// No inputs; a merge reads at most `most` at the same time.
    ///
    /// # Panics
    /// For less than two.
    #[must_use]
    pub fn of(most: usize) -> Self {
        assert!(most >= 2, "a merge has two inputs at least");
        Self { most, waiting: Vec::new() }
    }

    /// Adds an input behind all others; `merge` adds some up that follow each other.
    ///
    /// # Errors
    /// Those of `merge`.
    pub fn add<E>(
        &mut self,
        input: T,
        mut merge: impl FnMut(Vec<T>) -> Result<T, E>,
    ) -> Result<(), E> {
        while self.is_due() {
            self.merge_last(self.most, &mut merge)?;
        }
        self.waiting.push((0, input));
        Ok(())
    }

    /// The inputs of the last merge.
    ///
    /// # Errors
    /// Those of `merge`.
    pub fn finish<E>(mut self, mut merge: impl FnMut(Vec<T>) -> Result<T, E>) -> Result<Vec<T>, E> {
        while let Some(more) = self.waiting.len().checked_sub(self.most).filter(|more| *more > 0) {
            self.merge_last(self.most.min(more + 1), &mut merge)?;
        }
        Ok(self.waiting.into_iter().map(|(_, input)| input).collect())
    }

    /// Whether the last inputs are as many of equal size as can be merged.
    fn is_due(&self) -> bool {
        let Some((size, _)) = self.waiting.last() else { return false };
        self.waiting.iter().rev().take_while(|(other, _)| other == size).count() >= self.most
    }

    fn merge_last<E>(
        &mut self,
        count: usize,
        merge: &mut impl FnMut(Vec<T>) -> Result<T, E>,
    ) -> Result<(), E> {
        let last = self.waiting.split_off(self.waiting.len() - count);
        let size = last.iter().map(|(size, _)| *size).max().unwrap_or(0);
        let sum = merge(last.into_iter().map(|(_, input)| input).collect())?;
        self.waiting.push((size + 1, sum));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_sums_wait_and_the_order_stays() {
        for (most, inputs) in [(2, 5000u32), (4, 5000), (256, 70_000), (5, 5), (5, 6), (3, 0)] {
            let mut steps = Steps::of(most);
            let mut read = 0;
            let mut merge = |inputs: Vec<Vec<u32>>| {
                assert!((2..=most).contains(&inputs.len()));
                let sum = inputs.concat();
                read += sum.len();
                Ok::<_, ()>(sum)
            };
            for input in 0..inputs {
                steps.add(vec![input], &mut merge).unwrap();
                let sums = steps.waiting.iter().filter(|(size, _)| *size > 0).count();
                assert!(sums <= 2 * most.max(14), "{sums} sums of {most} each");
            }
            let last = steps.finish(&mut merge).unwrap();
            assert!(last.len() <= most);
            assert_eq!(last.concat(), (0..inputs).collect::<Vec<_>>());
            assert!(read <= 14 * inputs as usize, "{read} inputs are read for {inputs}");
            assert!(read == 0 || last.len() < inputs as usize);
        }
    }
}
