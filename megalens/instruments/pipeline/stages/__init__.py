"""What every training in stages needs: messages between the processes that hold them, and batches cut into micro-batches."""
