"""Predicted and measured steps of trainings whose forward and backward passes run in different processes."""
