//! A flow that fans out twice and in twice.

use std::ops::Range;

/// A flow of this width: a root, `width` branches, `width` leaves for each, `width` joins, an end.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// How wide each step is.
    pub width: u64,
}

impl Shape {
    /// How many jobs there are.
    pub fn jobs(self) -> u64 {
        self.end() + 1
    }

    /// The last one.
    pub fn end(self) -> u64 {
        self.joins().end
    }

    fn leaves(self) -> Range<u64> {
        let first = 1 + self.width;
        first..first + self.width * self.width
    }

    fn joins(self) -> Range<u64> {
        let first = self.leaves().end;
        first..first + self.width
    }

    /// Whether it is one of those in the middle.
    pub fn is_leaf(self, number: u64) -> bool {
        self.leaves().contains(&number)
    }

    /// Whether it adds up what it waited for.
    pub fn sums(self, number: u64) -> bool {
        number >= self.joins().start
    }

    /// What the end adds up to.
    pub fn sum(self) -> u64 {
        self.leaves().sum()
    }

    /// What a job waits for.
    pub fn parents(self, number: u64) -> Vec<u64> {
        let (leaves, joins) = (self.leaves(), self.joins());
        match number {
            0 => vec![],
            n if n <= self.width => vec![0],
            n if leaves.contains(&n) => vec![1 + (n - leaves.start) / self.width],
            n if joins.contains(&n) => {
                let first = leaves.start + (n - joins.start) * self.width;
                (first..first + self.width).collect()
            }
            _ => joins.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_of_width_two() {
        let shape = Shape { width: 2 };
        let parents: Vec<Vec<u64>> = (0..shape.jobs()).map(|n| shape.parents(n)).collect();
        let expected: Vec<Vec<u64>> = vec![
            vec![],
            vec![0],
            vec![0],
            vec![1],
            vec![1],
            vec![2],
            vec![2],
            vec![3, 4],
            vec![5, 6],
            vec![7, 8],
        ];
        assert_eq!(parents, expected);
        assert_eq!(shape.sum(), 3 + 4 + 5 + 6);
        assert_eq!(Shape { width: 100 }.jobs(), 10_202);
    }
}
