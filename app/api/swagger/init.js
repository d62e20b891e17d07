// Addresses are relative to the page, so that it also works below a path of a proxy.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  displayRequestDuration: true,
  fileUploadMediaTypes: ["application/gzip"],
});
