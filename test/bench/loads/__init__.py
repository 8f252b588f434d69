"""The measurements: each part is a function that takes the rig and the plan and gives a Table."""
