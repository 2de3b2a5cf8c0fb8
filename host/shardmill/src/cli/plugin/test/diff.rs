//! How two lists go together. Pure.

/// Comparisons that are made at most: two lists that are longer, and different all over, are not put side by side.
const MOST: usize = 4_000_000;

/// A step through both lists at once, with places in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The two go together.
    Both(usize, usize),
    /// This one of the left list is not on the right.
    Left(usize),
    /// This one of the right list is not on the left.
    Right(usize),
}

/// Goes through both lists in their order, with as many as possible together.
pub(super) fn align(left: usize, right: usize, go_together: impl Fn(usize, usize) -> bool) -> Vec<Step> {
    let most = left.min(right);
    let front = (0..most).take_while(|at| go_together(*at, *at)).count();
    let back = (0..most - front).take_while(|at| go_together(left - 1 - at, right - 1 - at)).count();
    let mut steps: Vec<Step> = (0..front).map(|at| Step::Both(at, at)).collect();
    middle(front..left - back, front..right - back, &go_together, &mut steps);
    steps.extend((0..back).rev().map(|at| Step::Both(left - 1 - at, right - 1 - at)));
    steps
}

fn middle(
    left: std::ops::Range<usize>,
    right: std::ops::Range<usize>,
    go_together: &impl Fn(usize, usize) -> bool,
    steps: &mut Vec<Step>,
) {
    let width = right.len() + 1;
    if left.len().saturating_mul(right.len()) > MOST {
        steps.extend(left.map(Step::Left));
        steps.extend(right.map(Step::Right));
        return;
    }
    // How many go together from here on, of each pair of places.
    let mut longest = vec![0_u32; (left.len() + 1) * width];
    let mut together = vec![false; left.len() * right.len()];
    for row in (0..left.len()).rev() {
        for column in (0..right.len()).rev() {
            let here = go_together(left.start + row, right.start + column);
            together[row * right.len() + column] = here;
            let below = (row + 1) * width + column;
            longest[row * width + column] =
                if here { longest[below + 1] + 1 } else { longest[below].max(longest[row * width + column + 1]) };
        }
    }
    let (mut row, mut column) = (0, 0);
    while row < left.len() && column < right.len() {
        let is_left = longest[(row + 1) * width + column] >= longest[row * width + column + 1];
        if together[row * right.len() + column] {
            steps.push(Step::Both(left.start + row, right.start + column));
            (row, column) = (row + 1, column + 1);
        } else if is_left {
            steps.push(Step::Left(left.start + row));
            row += 1;
        } else {
            steps.push(Step::Right(right.start + column));
            column += 1;
        }
    }
    steps.extend((left.start + row..left.end).map(Step::Left));
    steps.extend((right.start + column..right.end).map(Step::Right));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(left: &str, right: &str) -> String {
        let (left, right) = (left.as_bytes(), right.as_bytes());
        let steps = align(left.len(), right.len(), |l, r| left[l] == right[r]);
        let show = |step: &Step| match *step {
            Step::Both(at, _) => format!(" {}", left[at] as char),
            Step::Left(at) => format!("-{}", left[at] as char),
            Step::Right(at) => format!("+{}", right[at] as char),
        };
        steps.iter().map(show).collect()
    }

    #[test]
    fn what_is_missing_and_what_is_new_stand_where_they_belong() {
        assert_eq!(shown("abc", "abc"), " a b c");
        assert_eq!(shown("abcd", "axcd"), " a-b+x c d");
        assert_eq!(shown("abc", "bcd"), "-a b c+d");
        assert_eq!(shown("", "ab"), "+a+b");
        assert_eq!(shown("ab", ""), "-a-b");
    }

    #[test]
    fn long_lists_that_differ_all_over_are_told_one_after_the_other() {
        let steps = align(3000, 3000, |_, _| false);
        assert_eq!((steps.len(), steps[2999], steps[3000]), (6000, Step::Left(2999), Step::Right(0)));
    }

    proptest! {
        #[test]
        fn each_is_in_one_step_and_what_goes_together_does(
            left in prop::collection::vec(0..4_u8, 0..20),
            right in prop::collection::vec(0..4_u8, 0..20),
        ) {
            let steps = align(left.len(), right.len(), |l, r| left[l] == right[r]);
            let (mut lefts, mut rights, mut together) = (Vec::new(), Vec::new(), 0);
            for step in &steps {
                match *step {
                    Step::Both(l, r) => {
                        prop_assert_eq!(left[l], right[r]);
                        lefts.push(l);
                        rights.push(r);
                        together += 1;
                    }
                    Step::Left(l) => lefts.push(l),
                    Step::Right(r) => rights.push(r),
                }
            }
            prop_assert!((0..left.len()).eq(lefts) && (0..right.len()).eq(rights));
            // The textbook's length.
            let mut table = vec![vec![0; right.len() + 1]; left.len() + 1];
            for l in (0..left.len()).rev() {
                for r in (0..right.len()).rev() {
                    table[l][r] = if left[l] == right[r] { table[l + 1][r + 1] + 1 } else { table[l + 1][r].max(table[l][r + 1]) };
                }
            }
            prop_assert_eq!(together, table[0][0]);
        }
    }
}
