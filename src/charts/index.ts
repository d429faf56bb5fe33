export { Chart, type IChartOptions } from './chart';
export {
  ColorScale,
  colorTable,
  hexOf,
  mixed,
  type Extent,
  type IColorLook,
  type Transform
} from './color-scale';
export { contrastColor } from './contrast-color';
export { lowMagnitude } from './decades';
export { ChartError } from './error';
export { followPointer, type IPointerFollower } from './follow-pointer';
export { formatBytes, formatCount, formatFull, formatInteger, formatNumber, timeWords } from './format';
export { domains, frames, locate, type IPlotFrame, type IPlace, type ISceneView } from './frames';
export { legend, type IColorLegend, type ILegendWords } from './legend';
export { COLORS } from './colors.generated';
export { flagColor } from './flag-color';
export { toPicture, toDataUrl, type IPicture } from './picture';
export { Pictures } from './pictures';
export { paint, type IMatrix, type IPixels } from './pixels';
export { SigmaScale } from './sigma-scale';
export { fill, type IOmissions, type IRecipe, type Row } from './recipe';
export { drawSVG, sized, vegaLiteSpec, withView, type ICaption, type ILook } from './still';
export { DARK_THEME, LIGHT_THEME, readTheme, themeConfig, watchTheme, type ITheme } from './theme';
export { Zoom, type Interval, type IZoomable, type IZoomOptions } from './zoom';
export { warmVega } from './vega';
export { Room } from './room';
