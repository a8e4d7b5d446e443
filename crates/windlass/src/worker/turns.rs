//! Which queue is asked first.

use windlass_core::name::QueueName;

/// Whose turn it is to be asked first: each queue as often as its weight says.
pub(super) struct Turns {
    pub(super) queues: Vec<QueueName>,
    weights: Vec<i64>,
    credit: Vec<i64>,
}

impl Turns {
    pub(super) fn new(queues: &[(QueueName, u32)]) -> Self {
        let weights: Vec<i64> = queues.iter().map(|(_, weight)| i64::from(*weight)).collect();
        let credit = vec![0; weights.len()];
        Self { queues: queues.iter().map(|(name, _)| name.clone()).collect(), weights, credit }
    }

    /// The queues, the one whose turn it is first. Those that follow are for what it leaves over.
    pub(super) fn next(&mut self) -> Vec<QueueName> {
        for (credit, weight) in self.credit.iter_mut().zip(&self.weights) {
            *credit += weight;
        }
        let mut order: Vec<usize> = (0..self.queues.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(self.credit[at]));
        if let Some(&first) = order.first() {
            self.credit[first] -= self.weights.iter().sum::<i64>();
        }
        order.into_iter().map(|at| self.queues[at].clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    #[test]
    fn each_queue_is_first_as_often_as_its_weight_says() {
        let names = ["a", "b", "c"].map(|name| name.try_into().unwrap());
        let queues: Vec<_> = names.into_iter().zip([5, 3, 1]).collect();
        let mut turns = Turns::new(&queues);
        let mut first = [0; 3];
        for _ in 0..90 {
            let order = turns.next();
            assert_eq!(order.len(), 3);
            first[queues.iter().position(|(name, _)| *name == order[0]).unwrap()] += 1;
        }
        assert_eq!(first, [50, 30, 10]);
    }
}
