"""Run rules on subjects, and prove those that pass by planting faults."""
