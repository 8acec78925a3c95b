function measuredFigure() { return null; }
