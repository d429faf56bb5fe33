"""What the training monitor finds: faults put into real trainings, and healthy trainings."""
