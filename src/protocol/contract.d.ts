// The JSON of protocol/ as it is imported here. TypeScript itself would read neither unions nor tuples.

declare module '#protocol/streams.json' {
  const contract: {
    readonly streams: Readonly<
      Record<import('./streams.generated').StreamName, import('./streams').IStreamInfo>
    >;
  };
  export default contract;
}

declare module '#protocol/messages.schema.json' {
  const schema: import('./schema').ISchema;
  export default schema;
}

declare module '#protocol/views.schema.json' {
  const schema: import('./schema').ISchema;
  export default schema;
}

declare module '#protocol/pipeline.schema.json' {
  const schema: import('./schema').ISchema;
  export default schema;
}

declare module '#protocol/split.schema.json' {
  const schema: import('./schema').ISchema;
  export default schema;
}

declare module '#protocol/charts/*.vl.json' {
  const template: Readonly<Record<string, unknown>>;
  export default template;
}

declare module '#protocol/charts/colors.json' {
  type Colors = readonly [string, string, ...string[]];
  type Eight = readonly [string, string, string, string, string, string, string, string];
  const colors: {
    readonly sequential: Colors;
    readonly diverging: Colors;
    readonly diverging_dark: Colors;
    readonly layers: { readonly light: Colors; readonly dark: Colors };
    readonly categorical: { readonly light: Eight; readonly dark: Eight };
    readonly flags: Colors;
    readonly nonfinite: readonly [string, string];
  };
  export default colors;
}
