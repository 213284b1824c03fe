//! The needs between items, by number. Stored flat, since most lists are long and most items need few others.

use std::ops::Range;

/// The needs of all items, concatenated.
#[derive(Debug, Default)]
pub struct Needs {
    numbers: Vec<u32>,
    /// Where the needs of each item end.
    ends: Vec<u32>,
}

impl Needs {
    pub fn push(&mut self, numbers: impl IntoIterator<Item = u32>) {
        self.numbers.extend(numbers);
        self.ends.push(u32::try_from(self.numbers.len()).unwrap_or(u32::MAX));
    }

    /// The slot of the next need.
    pub fn next_slot(&self) -> usize {
        self.numbers.len()
    }

    pub fn set(&mut self, slot: usize, number: u32) {
        if let Some(place) = self.numbers.get_mut(slot) {
            *place = number;
        }
    }

    /// The items that an item needs, counted from 0.
    pub fn of(&self, item: usize) -> &[u32] {
        self.numbers.get(self.range(item)).unwrap_or_default()
    }

    fn range(&self, item: usize) -> Range<usize> {
        let end = |at: Option<usize>| at.and_then(|at| self.ends.get(at)).map_or(0, |end| *end as usize);
        end(item.checked_sub(1))..end(Some(item))
    }

    /// A cycle of items, if there is one: each item needs the next, and the last needs the first. Uses an
    /// explicit stack, since a chain may be as long as the list.
    pub fn cycle(&self) -> Option<Vec<usize>> {
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            New,
            OnTheWay,
            Done,
        }
        let mut marks = vec![Mark::New; self.ends.len()];
        let mut way: Vec<(usize, Range<usize>)> = Vec::new();
        for first in 0..self.ends.len() {
            if marks[first] != Mark::New {
                continue;
            }
            marks[first] = Mark::OnTheWay;
            way.push((first, self.range(first)));
            while let Some((item, left)) = way.last_mut() {
                let Some(need) = left.next().and_then(|slot| self.numbers.get(slot)) else {
                    marks[*item] = Mark::Done;
                    way.pop();
                    continue;
                };
                let need = *need as usize;
                match marks[need] {
                    Mark::Done => {}
                    Mark::OnTheWay => {
                        let items = way.iter().map(|(item, _)| *item);
                        return Some(items.skip_while(|item| *item != need).collect());
                    }
                    Mark::New => {
                        marks[need] = Mark::OnTheWay;
                        way.push((need, self.range(need)));
                    }
                }
            }
        }
        None
    }
}
