function compositionFigure() { return null; }
function memoryFigure() { return null; }
