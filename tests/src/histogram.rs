//! A histogram among metrics, as it is told.

/// How many observations were no larger than each of some bounds, over all labels. By default nothing was observed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    /// Bounds in ascending order, the last one infinite, each with how many observations are no larger.
    buckets: Vec<(f64, f64)>,
}

// === impl Histogram ===

impl Histogram {
    /// Reads the text of `/metrics`.
    pub fn read(text: &str, name: &str) -> Histogram {
        let prefix = format!("{name}_bucket{{");
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for line in text.lines().filter_map(|line| line.strip_prefix(&prefix)) {
            let (labels, count) = line.rsplit_once(' ').expect("a value");
            let bound = labels.split("le=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a bound");
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().expect("a number") };
            let count: f64 = count.parse().expect("a number");
            match buckets.iter_mut().find(|(known, _)| *known == bound) {
                Some((_, sum)) => *sum += count,
                None => buckets.push((bound, count)),
            }
        }
        buckets.sort_by(|(left, _), (right, _)| left.total_cmp(right));
        Histogram { buckets }
    }

    /// What was observed since an earlier look.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let before = |bound| earlier.buckets.iter().find(|(known, _)| *known == bound).map_or(0.0, |(_, count)| *count);
        Histogram { buckets: self.buckets.iter().map(|(bound, count)| (*bound, count - before(*bound))).collect() }
    }

    /// How many observations there were.
    pub fn count(&self) -> f64 {
        self.buckets.last().map_or(0.0, |(_, count)| *count)
    }

    /// The bound that this part of all observations, 0 to 1, is no larger than; 0 if there are none.
    pub fn quantile(&self, part: f64) -> f64 {
        let wanted = self.count() * part;
        let found = self.buckets.iter().find(|(_, count)| *count >= wanted && *count > 0.0);
        found.map_or(0.0, |(bound, _)| *bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_of_all_labels_are_summed_and_quantiles_are_bounds() {
        let text = "late_seconds_bucket{le=\"0.5\",of=\"a\"} 1\nlate_seconds_bucket{le=\"2\",of=\"a\"} 3\n\
                    late_seconds_bucket{le=\"+Inf\",of=\"a\"} 3\nlate_seconds_bucket{le=\"0.5\",of=\"b\"} 7\n\
                    late_seconds_bucket{le=\"2\",of=\"b\"} 7\nlate_seconds_bucket{le=\"+Inf\",of=\"b\"} 7\n\
                    other_seconds_bucket{le=\"+Inf\"} 9\n";
        let late = Histogram::read(text, "late_seconds");
        assert_eq!((late.count(), late.quantile(0.5), late.quantile(0.8), late.quantile(1.0)), (10.0, 0.5, 0.5, 2.0));
        let since = late.since(&Histogram { buckets: vec![(0.5, 8.0), (2.0, 8.0), (f64::INFINITY, 8.0)] });
        assert_eq!((since.count(), since.quantile(0.5)), (2.0, 2.0));
        assert_eq!(late.since(&Histogram::default()), late);
        assert_eq!(Histogram::read(text, "other_seconds").quantile(0.1), f64::INFINITY);
        assert_eq!((Histogram::default().count(), Histogram::default().quantile(1.0)), (0.0, 0.0));
    }
}
