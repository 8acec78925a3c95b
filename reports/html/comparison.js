function chunkFigure() { return null; }
function loadFigure() { return null; }
function paretoFigure() { return null; }
