function requestFigure() { return null; }
function breakdownFigure() { return null; }
