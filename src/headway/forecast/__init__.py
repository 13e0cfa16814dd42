"""What a plan would come to: it is carried out in the simulated world, with bounds."""
