//! A TCP relay whose connections share one simulated link, for machines that allow no namespaces.
