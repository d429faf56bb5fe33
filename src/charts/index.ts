export { Chart, TextSpace } from './chart';
export {
  ColorScale,
  colorTable,
  hexOf,
  mixed,
  type IColorLook,
  type Transform,
  lowMagnitude,
  contrastColor,
  flagColor,
  legend,
  type IColorLegend,
  SigmaScale
} from './color-scale';
export {
  greatestOf,
  hasUnfinished,
  middleOf,
  telling,
  frames,
  locate,
  type IPlotFrame,
  type IPlace,
  type IMatrix,
  type IPixels
} from './pixels';
export { followPointer, Zoom, type Interval, type IZoomOptions } from './zoom';
export { formatBytes, formatCount, formatFull, formatInteger, formatNumber, timeWords } from './format';
export { default as COLORS } from '#protocol/charts/colors.json';
export { Pictures, drawSVG, sized, vegaLiteSpec, withView, type ICaption, type ILook } from './pictures';
export { ChartError, type IRecipe, type Row } from './recipe';
export { DARK_THEME, LIGHT_THEME, readTheme, themeConfig, watchTheme, type ITheme, warmVega } from './vega';
